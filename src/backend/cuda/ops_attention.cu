// The paged cache, softmax attention of many rows, and block selection.
#include "backend/cuda/attention.cuh"

#include <algorithm>

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

__global__ void append(PassView pass, HeadsView in, StateView cache) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= pass.counts[PassView::kRows] || i >= in.count * in.dim) return;
  const float value = in.base[row * in.row_stride + int64_t{i / in.dim} * in.stride + i % in.dim];
  store(cache, pass.slots[row] * cache.width + i, value);
}

// A block for one query head of one row: split after split, each an own softmax over its keys,
// merged into the running one in order.
__global__ void attend_rows(PassView pass, AttendView a) {
  __shared__ float q[kMaxDim];
  __shared__ float scores[kSplit];
  __shared__ int32_t slots[kSplit];
  __shared__ float partial[kWarp];
  const int row = static_cast<int>(blockIdx.y);
  const int h = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  if (row >= pass.counts[PassView::kRows]) return;
  const RowKeys keys(pass, row);
  const int kv_head = h / (a.q.count / a.n_kv_heads);
  const int dim = a.q.dim;
  const int v_dim = a.out.dim;
  const Range range(pass, a, keys);
  const int n_keys = range.n_keys;
  const int start = range.start;
  const int32_t* selection =
      a.selection == nullptr ? nullptr : a.selection + int64_t{row} * a.n_selected;
  for (int i = thread; i < dim; i += kThreads)
    q[i] = a.q.base[row * a.q.row_stride + int64_t{h} * a.q.stride + i];

  float top = a.sinks == nullptr ? -INFINITY : a.sinks[h];
  float sum = a.sinks == nullptr ? 0.0F : 1.0F;
  float values[kMaxDim / kThreads] = {};
  const int first = range.first_split(keys) * kSplit;
  for (int begin = first; begin < n_keys; begin += kSplit) {
    const int n = min(kSplit, n_keys - begin);
    __syncthreads();
    for (int j = thread; j < n; j += kThreads)
      slots[j] = visible_slot(pass, a, keys, selection, start, begin + j);
    __syncthreads();
    for (int j = thread / kWarp; j < n; j += kWarps) {
      float score = -INFINITY;
      if (slots[j] >= 0) {
        const int64_t base = slots[j] * a.k_cache.width + int64_t{kv_head} * dim;
        float dot = 0.0F;
        for (int i = lane; i < dim; i += kWarp)
          dot = fmaf(q[i], load(a.k_cache, base + i), dot);
        score = a.scale * warp_sum(dot);
        if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
      }
      if (lane == 0) scores[j] = score;
    }
    __syncthreads();
    const float split_top = block_max(thread < n ? scores[thread] : -INFINITY, partial);
    if (split_top == -INFINITY) continue;
    const float p = thread < n && slots[thread] >= 0 ? expf(scores[thread] - split_top) : 0.0F;
    __syncthreads();
    if (thread < n) scores[thread] = p;
    const float split_sum = block_sum(p, partial);
    const float merged = fmaxf(top, split_top);
    const float keep = top == -INFINITY ? 0.0F : expf(top - merged);
    const float take = expf(split_top - merged);
    top = merged;
    sum = sum * keep + split_sum * take;
#pragma unroll
    for (int part = 0; part < kMaxDim / kThreads; ++part) {
      const int i = part * kThreads + thread;
      if (i >= v_dim) break;
      float split = 0.0F;
      for (int j = 0; j < n; ++j) {
        if (slots[j] < 0) continue;
        split =
            fmaf(scores[j],
                 load(a.v_cache, slots[j] * a.v_cache.width + int64_t{kv_head} * v_dim + i), split);
      }
      values[part] = values[part] * keep + split * take;
    }
  }
#pragma unroll
  for (int part = 0; part < kMaxDim / kThreads; ++part) {
    const int i = part * kThreads + thread;
    if (i >= v_dim) break;
    a.out.base[row * a.out.row_stride + int64_t{h} * a.out.stride + i] =
        sum > 0 ? values[part] / sum : 0.0F;
  }
}

struct SelectView {
  HeadsView q;
  StateView cache;
  NormView norm;
  RopeView rope;
  float* scores;  // (rows, max_blocks)
  int32_t* out;   // (rows, budget + 1)
  int32_t max_blocks, ratio, budget;
};

// The key of a block into `key` (dim): mean, norm, rope. One warp.
__device__ void block_key(const PassView& pass, const SelectView& s, const RowKeys& keys, int block,
                          float* key) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int dim = s.q.dim;
  float squares = 0.0F;
  for (int i = lane; i < dim; i += kWarp) {
    float sum = 0.0F;
    for (int t = 0; t < s.ratio; ++t)
      sum += load(s.cache, keys.path(pass, block * s.ratio + t).slot * s.cache.width + i);
    key[i] = sum / static_cast<float>(s.ratio);
    squares += key[i] * key[i];
  }
  if (s.norm.present) {
    const float mean = warp_sum(squares) / static_cast<float>(dim);
    const float factor = 1.0F / sqrtf(mean + s.norm.eps);
    for (int i = lane; i < dim; i += kWarp)
      key[i] *= factor * (s.norm.weight == nullptr ? 1.0F : s.norm.weight[i]);
  }
  __syncwarp();
  const int32_t position = keys.path(pass, block * s.ratio).position;
  for (int pair = lane; pair < s.rope.n_pairs; pair += kWarp) {
    float c = 0.0F;
    float sn = 0.0F;
    rope_angle(position, s.rope.inv_freq[pair], s.rope.magnitude, &c, &sn);
    float& first = key[s.rope.adjacent ? 2 * pair : pair];
    float& second = key[s.rope.adjacent ? 2 * pair + 1 : pair + s.rope.n_pairs];
    const float a = first;
    const float b = second;
    first = a * c - b * sn;
    second = a * sn + b * c;
  }
  __syncwarp();
}

// A block for one row: warps score the blocks of tokens in turn.
__global__ void score_blocks(PassView pass, SelectView s) {
  extern __shared__ float shared_keys[];  // (warps, dim)
  const int row = static_cast<int>(blockIdx.y);
  if (row >= pass.counts[PassView::kRows]) return;
  const RowKeys keys(pass, row);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* key = shared_keys + warp * s.q.dim;
  const int n_blocks = keys.n_path / s.ratio;
  for (int block = static_cast<int>(blockIdx.x) * kWarps + warp; block < n_blocks;
       block += static_cast<int>(gridDim.x) * kWarps) {
    block_key(pass, s, keys, block, key);
    float score = 0.0F;
    for (int h = 0; h < s.q.count; ++h) {
      const float* q = s.q.base + row * s.q.row_stride + int64_t{h} * s.q.stride;
      float dot = 0.0F;
      for (int i = lane; i < s.q.dim; i += kWarp)
        dot = fmaf(q[i], key[i], dot);
      score += fmaxf(warp_sum(dot), 0.0F);
    }
    if (lane == 0)
      s.scores[int64_t{row} * s.max_blocks + block] = score / sqrtf(static_cast<float>(s.q.dim));
    __syncwarp();
  }
}

// A block for one row: a block of tokens is chosen when fewer than `budget` come before it in the
// order of falling score and rising index. The chosen ones are written in rising order by counting.
__global__ void choose_blocks(PassView pass, SelectView s) {
  __shared__ int32_t warp_counts[kWarp];
  const int row = static_cast<int>(blockIdx.x);
  if (row >= pass.counts[PassView::kRows]) return;
  const RowKeys keys(pass, row);
  const int n_blocks = keys.n_path / s.ratio;
  const float* scores = s.scores + int64_t{row} * s.max_blocks;
  int32_t* out = s.out + int64_t{row} * (s.budget + 1);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  int written = 0;
  for (int begin = 0; begin < n_blocks; begin += kThreads) {
    const int block = begin + thread;
    bool chosen = false;
    if (block < n_blocks) {
      int before = 0;
      for (int other = 0; other < n_blocks && before < s.budget; ++other)
        before +=
            scores[other] > scores[block] || (scores[other] == scores[block] && other < block);
      chosen = before < s.budget;
    }
    const unsigned votes = __ballot_sync(kAllLanes, chosen);
    if (thread % kWarp == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    int offset = written;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) offset += warp_counts[w];
      written += warp_counts[w];
    }
    if (chosen) out[offset + __popc(votes & ((1U << (thread % kWarp)) - 1U))] = block;
    __syncthreads();
  }
  const bool incomplete = keys.n_path % s.ratio != 0;
  if (thread == 0 && incomplete) out[written] = n_blocks;
  for (int i = written + (incomplete ? 1 : 0) + thread; i <= s.budget; i += kThreads)
    out[i] = -1;
}

int64_t max_blocks_of(const ProgramLimits& limits, const plan::SelectBlocks& op) {
  return int64_t{limits.n_pages} * limits.page_tokens / op.ratio + 1;
}

}  // namespace

bool has_shape(const plan::Plan& /*plan*/, const plan::Attend& op) {
  return op.q.dim <= kMaxDim && op.out.dim <= kMaxDim;
}

bool has_shape(const plan::Plan& /*plan*/, const plan::SelectBlocks& op) {
  return op.q.dim <= kMaxDim;
}

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::SelectBlocks& op) {
  return limits.max_rows * max_blocks_of(limits, op) * static_cast<int64_t>(sizeof(float));
}

void run_op(const Context& context, const plan::CacheAppend& op) {
  const int64_t n = int64_t{op.in.count} * op.in.dim;
  const dim3 grid(static_cast<unsigned>((n + kThreads - 1) / kThreads),
                  static_cast<unsigned>(context.n_rows));
  append<<<grid, kThreads, 0, context.stream>>>(context.pass, context.heads(op.in),
                                                context.state(op.cache));
}

AttendView view_of(const Context& context, const plan::Attend& op) {
  return {.q = context.heads(op.q),
          .out = context.heads(op.out),
          .k_cache = context.state(op.k_cache),
          .v_cache = context.state(op.v_cache),
          .sinks = context.vector(op.sinks),
          .selection = op.selection ? context.i32(op.selection) : nullptr,
          .n_kv_heads = op.n_kv_heads,
          .window = op.window,
          .mask = static_cast<int32_t>(op.mask),
          .block = op.block,
          .n_selected = op.selection ? static_cast<int32_t>(context.width(op.selection)) : 0,
          .selection_block = op.selection_block,
          .scale = op.scale,
          .softcap = op.softcap};
}

void run_op(const Context& context, const plan::Attend& op) {
  const AttendView view = view_of(context, op);
  const dim3 grid(static_cast<unsigned>(op.q.count), static_cast<unsigned>(context.n_rows));
  attend_rows<<<grid, kThreads, 0, context.stream>>>(context.pass, view);
}

void run_op(const Context& context, const plan::SelectBlocks& op) {
  const int64_t max_blocks = max_blocks_of(context.limits, op);
  const SelectView view = {.q = context.heads(op.q),
                           .cache = context.state(op.key_cache),
                           .norm = context.norm(op.key_norm, op.q.dim),
                           .rope = context.rope(op.rope),
                           .scores = reinterpret_cast<float*>(context.scratch),
                           .out = context.i32(op.out),
                           .max_blocks = static_cast<int32_t>(max_blocks),
                           .ratio = op.ratio,
                           .budget = op.budget};
  const int64_t n_blocks = context.n_keys / op.ratio;
  const dim3 grid(static_cast<unsigned>(std::clamp<int64_t>(n_blocks / kWarps, 1, 64)),
                  static_cast<unsigned>(context.n_rows));
  score_blocks<<<grid, kThreads, kWarps* static_cast<size_t>(op.q.dim) * sizeof(float),
                 context.stream>>>(context.pass, view);
  choose_blocks<<<static_cast<unsigned>(context.n_rows), kThreads, 0, context.stream>>>(
      context.pass, view);
}

}  // namespace kapitsa::backend::cuda
