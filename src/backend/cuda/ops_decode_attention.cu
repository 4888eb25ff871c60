// Attention of few rows, fused: what is done to queries, keys and values before it, and the sum
// over keys with a block for each split and key head. The splits of a row are merged in order.
#include "backend/cuda/attention.cuh"

#include <algorithm>

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxGroup = 16;  // query heads of a key head
constexpr int kBatch = 8;      // loads on their way at once

struct PrepareView {
  HeadsView q, k, v;
  NormView q_norm, k_norm, v_norm;
  RopeView rope;
  StateView k_cache, v_cache;
  float q_scale;
};

// A block for one head of one row: first those of q, then of k, then of v.
__global__ void prepare(PassView pass, PrepareView p) {
  __shared__ float head[kMaxDim];
  __shared__ float partial[kWarp];
  start_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.y);
  int h = static_cast<int>(blockIdx.x);
  if (row >= pass.counts[PassView::kRows]) return;
  const bool is_q = h < p.q.count;
  const bool is_v = h >= p.q.count + p.k.count;
  if (!is_q) h -= is_v ? p.q.count + p.k.count : p.q.count;
  const HeadsView& heads = is_q ? p.q : is_v ? p.v : p.k;
  const NormView& norm = is_q ? p.q_norm : is_v ? p.v_norm : p.k_norm;
  float* x = heads.base + row * heads.row_stride + int64_t{h} * heads.stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int n_threads = static_cast<int>(blockDim.x);

  float squares = 0.0F;
  for (int i = thread; i < heads.dim; i += n_threads)
    squares += x[i] * x[i];
  float factor = is_q ? p.q_scale : 1.0F;
  if (norm.present)
    factor /= sqrtf(block_sum(squares, partial) / static_cast<float>(heads.dim) + norm.eps);
  const float* weight = norm.weight == nullptr ? nullptr : norm.weight + h * norm.weight_stride;
  for (int i = thread; i < heads.dim; i += n_threads)
    head[i] = x[i] * factor * (norm.present && weight != nullptr ? weight[i] : 1.0F);
  __syncthreads();
  for (int pair = thread; !is_v && pair < p.rope.n_pairs; pair += n_threads) {
    float c = 0.0F;
    float s = 0.0F;
    rope_angle(pass.positions[row], p.rope.inv_freq[pair], p.rope.magnitude, &c, &s);
    float& first = head[p.rope.adjacent ? 2 * pair : pair];
    float& second = head[p.rope.adjacent ? 2 * pair + 1 : pair + p.rope.n_pairs];
    const float a = first;
    const float b = second;
    first = a * c - b * s;
    second = a * s + b * c;
  }
  __syncthreads();
  const StateView& cache = is_v ? p.v_cache : p.k_cache;
  for (int i = thread; i < heads.dim; i += n_threads) {
    if (is_q) {
      x[i] = head[i];
    } else {
      store(cache, pass.slots[row] * cache.width + int64_t{h} * heads.dim + i, head[i]);
    }
  }
}

// Partial results of a split: (row, query head, split) of v_dim values, the top score, the sum.
struct Partials {
  float* base;
  int32_t n_splits, v_dim;

  __device__ float* at(int64_t row, int heads, int h, int split) const {
    return base + ((row * heads + h) * n_splits + split) * (v_dim + 2);
  }
};

// Four elements of an entry. The type is a constant, so that loads of a batch overlap.
template <DType kType>
__device__ float4 load4(const StateView& state, int64_t i) {
  if constexpr (kType == DType::f32) {
    return *reinterpret_cast<const float4*>(state.data + 4 * i);
  } else if constexpr (kType == DType::q8_0) {
    const uint8_t* block = state.data + i / kWarp * kQ8Bytes;
    const float scale = __half2float(*reinterpret_cast<const __half*>(block));
    const auto* codes = reinterpret_cast<const int8_t*>(block + 2 + i % kWarp);
    return scaled(make_float4(static_cast<float>(codes[0]), static_cast<float>(codes[1]),
                              static_cast<float>(codes[2]), static_cast<float>(codes[3])),
                  scale);
  } else {
    const uint2 bits = *reinterpret_cast<const uint2*>(state.data + 2 * i);
    float2 a;
    float2 b;
    if constexpr (kType == DType::f16) {
      a = __half22float2(*reinterpret_cast<const __half2*>(&bits.x));
      b = __half22float2(*reinterpret_cast<const __half2*>(&bits.y));
    } else {
      a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits.x));
      b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits.y));
    }
    return make_float4(a.x, a.y, b.x, b.y);
  }
}

// scores (group, kSplit) of the keys in slots; -infinity where there is none.
template <int kGroup, DType kType>
__device__ void score_keys(const AttendView& a, int kv_head, const int32_t* slots, const float* q,
                           float* scores) {
  const int group = a.q.count / a.n_kv_heads;
  const int dim = a.q.dim;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  // Eight lanes share a key, so a warp works on four at a time.
  const int part = lane % 8;
  for (int j = warp * 4 + lane / 8; j < kSplit; j += kWarps * 4) {
    const bool seen = slots[j] >= 0;
    const int64_t base = seen ? slots[j] * a.k_cache.width + int64_t{kv_head} * dim : 0;
    float dots[kGroup] = {};
    // A batch of the key's elements at once, so that their loads overlap.
    for (int from = 4 * part; from < dim; from += 32 * kBatch) {
      float4 k[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = from + 32 * b;
        k[b] = seen && i < dim ? load4<kType>(a.k_cache, base + i)
                               : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = from + 32 * b;
        if (i >= dim) break;
#pragma unroll
        for (int h = 0; h < kGroup; ++h) {
          if (h >= group) break;
          const float4 x = *reinterpret_cast<const float4*>(q + h * dim + i);
          dots[h] =
              fmaf(x.x, k[b].x, fmaf(x.y, k[b].y, fmaf(x.z, k[b].z, fmaf(x.w, k[b].w, dots[h]))));
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      if (h >= group) break;
      float dot = dots[h];
      dot += __shfl_xor_sync(kAllLanes, dot, 4);
      dot += __shfl_xor_sync(kAllLanes, dot, 2);
      dot += __shfl_xor_sync(kAllLanes, dot, 1);
      float score = a.scale * dot;
      if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
      if (part == 0) scores[h * kSplit + j] = seen ? score : -INFINITY;
    }
  }
}

// Four columns of the weighted values of one strip of the keys, for each query head.
template <int kGroup, DType kType>
__device__ void sum_values(const AttendView& a, int kv_head, int n, int strip, int strips,
                           int column, const int32_t* slots, const float* scores, float4* sums) {
  const int group = a.q.count / a.n_kv_heads;
  const int v_dim = a.out.dim;
  const int columns = v_dim / 4;
  float4 acc[kGroup] = {};
  for (int from = strip; from < n; from += strips * kBatch) {
    float4 v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int j = from + strips * b;
      const int32_t slot = j < n ? slots[j] : -1;
      v[b] = slot >= 0 ? load4<kType>(a.v_cache, slot * a.v_cache.width + int64_t{kv_head} * v_dim +
                                                     4 * column)
                       : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int j = from + strips * b;
      if (j >= n) break;
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        if (h >= group) break;
        const float p = scores[h * kSplit + j];
        acc[h].x = fmaf(p, v[b].x, acc[h].x);
        acc[h].y = fmaf(p, v[b].y, acc[h].y);
        acc[h].z = fmaf(p, v[b].z, acc[h].z);
        acc[h].w = fmaf(p, v[b].w, acc[h].w);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    if (h < group) sums[(strip * group + h) * columns + column] = acc[h];
  }
}

// A block for one split, one key head, one row: all query heads of the key head together, so that
// keys and values are read once. kGroup bounds their number.
template <int kGroup, DType kType>
__global__ void __launch_bounds__(kThreads)
    attend_split(PassView pass, AttendView a, Partials partials) {
  extern __shared__ __align__(16) float shared[];
  __shared__ int32_t slots[kSplit];
  __shared__ float reduce[kWarp];
  start_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.z);
  if (row >= pass.counts[PassView::kRows]) return;
  const int split = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const RowKeys keys(pass, row);
  const Range range(pass, a, keys);
  const int begin = split * kSplit;
  if (begin >= range.n_keys || split < range.first_split(keys)) return;
  const int n = min(kSplit, range.n_keys - begin);
  const int group = a.q.count / a.n_kv_heads;
  const int dim = a.q.dim;
  const int v_dim = a.out.dim;
  const int thread = static_cast<int>(threadIdx.x);
  float* q = shared;                // (group, dim)
  float* scores = q + group * dim;  // (group, kSplit)
  const int32_t* selection =
      a.selection == nullptr ? nullptr : a.selection + int64_t{row} * a.n_selected;
  for (int i = thread; i < group * dim; i += kThreads)
    q[i] =
        a.q.base[row * a.q.row_stride + int64_t{kv_head * group + i / dim} * a.q.stride + i % dim];
  for (int j = thread; j < kSplit; j += kThreads)
    slots[j] = j < n ? visible_slot(pass, a, keys, selection, range.start, begin + j) : -1;
  __syncthreads();

  score_keys<kGroup, kType>(a, kv_head, slots, q, scores);
  __syncthreads();
  for (int h = 0; h < group; ++h) {
    const float score = scores[h * kSplit + thread];
    const float top = block_max(score, reduce);
    const float p = score == -INFINITY ? 0.0F : expf(score - top);
    scores[h * kSplit + thread] = p;
    const float sum = block_sum(p, reduce);
    if (thread > 0) continue;
    float* out = partials.at(row, a.q.count, kv_head * group + h, split);
    out[v_dim] = top;
    out[v_dim + 1] = sum;
  }
  __syncthreads();
  // A thread for four elements of the values and, where there are threads left, a part of the keys.
  const int columns = v_dim / 4;
  const int strips = max(1, min(kThreads / columns, 8));
  auto* sums = reinterpret_cast<float4*>(scores + group * kSplit);  // (strips, group, columns)
  const int strip = thread / columns;
  const int column = thread % columns;
  if (strip < strips)
    sum_values<kGroup, kType>(a, kv_head, n, strip, strips, column, slots, scores, sums);
  __syncthreads();
  for (int i = thread; i < group * v_dim; i += kThreads) {
    const int h = i / v_dim;
    const int e = i % v_dim;
    float value = 0.0F;
    for (int s = 0; s < strips; ++s)
      value += reinterpret_cast<const float*>(sums + (s * group + h) * columns)[e];
    partials.at(row, a.q.count, kv_head * group + h, split)[e] = value;
  }
}

// A block for one query head of one row: merges the splits and applies the gate.
__global__ void merge_splits(PassView pass, AttendView a, Partials partials, HeadsView gate,
                             plan::Activation activation) {
  start_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.y);
  const int h = static_cast<int>(blockIdx.x);
  if (row >= pass.counts[PassView::kRows]) return;
  const RowKeys keys(pass, row);
  const Range range(pass, a, keys);
  const int first = range.first_split(keys);
  const int end = (range.n_keys + kSplit - 1) / kSplit;
  const int v_dim = a.out.dim;
  for (int i = static_cast<int>(threadIdx.x); i < v_dim; i += static_cast<int>(blockDim.x)) {
    float top = a.sinks == nullptr ? -INFINITY : a.sinks[h];
    float sum = a.sinks == nullptr ? 0.0F : 1.0F;
    float value = 0.0F;
    for (int split = first; split < end; ++split) {
      const float* part = partials.at(row, a.q.count, h, split);
      const float split_top = part[v_dim];
      if (split_top == -INFINITY) continue;
      const float merged = fmaxf(top, split_top);
      const float keep = top == -INFINITY ? 0.0F : expf(top - merged);
      const float take = expf(split_top - merged);
      top = merged;
      sum = sum * keep + part[v_dim + 1] * take;
      value = value * keep + part[i] * take;
    }
    float out = sum > 0 ? value / sum : 0.0F;
    if (gate.base != nullptr) {
      // A gate has the shape of the result or one element for each head.
      const int64_t at = row * gate.row_stride + int64_t{h} * gate.stride;
      out *= activate(activation, gate.base[at + (gate.dim == 1 ? 0 : i)]);
    }
    a.out.base[row * a.out.row_stride + int64_t{h} * a.out.stride + i] = out;
  }
}

// Rows of a prefill may be many: then the gate follows the kernel of the primitive.
__global__ void gate_rows(const int32_t* count, HeadsView out, HeadsView gate,
                          plan::Activation activation) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= *count || i >= out.count * out.dim) return;
  const int h = i / out.dim;
  const int e = i % out.dim;
  const float g =
      gate.base[row * gate.row_stride + int64_t{h} * gate.stride + (gate.dim == 1 ? 0 : e)];
  out.base[row * out.row_stride + int64_t{h} * out.stride + e] *= activate(activation, g);
}

int32_t max_splits(const ProgramLimits& limits) {
  return static_cast<int32_t>(
      (int64_t{limits.n_pages} * limits.page_tokens + limits.max_rows + kSplit - 1) / kSplit);
}

constexpr int32_t kMaxDecodeRows = 32;

template <int kGroup, DType kType>
void launch_splits(const Context& context, const AttendView& view, const Partials& partials,
                   dim3 grid, int shared) {
  static const bool prepared = [] {
    return cudaFuncSetAttribute(attend_split<kGroup, kType>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                200 * 1024) == cudaSuccess;
  }();
  static_cast<void>(prepared);
  launch_early(attend_split<kGroup, kType>, grid, kThreads, shared, context.stream, context.pass,
               view, partials);
}

template <int kGroup>
void launch_group(const Context& context, const AttendView& view, const Partials& partials,
                  dim3 grid, int shared) {
  switch (view.k_cache.dtype) {
  case DType::f32: return launch_splits<kGroup, DType::f32>(context, view, partials, grid, shared);
  case DType::bf16:
    return launch_splits<kGroup, DType::bf16>(context, view, partials, grid, shared);
  case DType::q8_0:
    return launch_splits<kGroup, DType::q8_0>(context, view, partials, grid, shared);
  default: return launch_splits<kGroup, DType::f16>(context, view, partials, grid, shared);
  }
}

}  // namespace

bool has_shape(const plan::Plan& plan, const plan::Attention& op) {
  const plan::Attend& a = op.attend;
  const int32_t group = a.q.count / a.n_kv_heads;
  const bool gate_fits = !op.gate.buffer || (op.gate.count == a.q.count &&
                                             (op.gate.dim == 1 || op.gate.dim == a.out.dim));
  const bool same_type = plan.state(a.k_cache).dtype == plan.state(a.v_cache).dtype;
  return has_shape(plan, a) && gate_fits && same_type && group <= kMaxGroup && a.q.dim % 4 == 0 &&
         a.out.dim % 4 == 0;
}

bool has_shape(const plan::Plan& /*plan*/, const plan::AttentionPrepare& op) {
  return std::max({op.q.dim, op.k.dim, op.v.dim}) <= kMaxDim;
}

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::Attention& op) {
  return int64_t{std::min(limits.max_rows, kMaxDecodeRows)} * op.attend.q.count *
         max_splits(limits) * (op.attend.out.dim + 2) * 4;
}

void run_op(const Context& context, const plan::AttentionPrepare& op) {
  const PrepareView view = {.q = context.heads(op.q),
                            .k = context.heads(op.k),
                            .v = context.heads(op.v),
                            .q_norm = context.norm(op.q_norm, op.q.dim),
                            .k_norm = context.norm(op.k_norm, op.k.dim),
                            .v_norm = context.norm(op.v_norm, op.v.dim),
                            .rope = context.rope(op.rope),
                            .k_cache = context.state(op.k_cache),
                            .v_cache = context.state(op.v_cache),
                            .q_scale = op.q_scale};
  launch_early(prepare,
               dim3(static_cast<unsigned>(op.q.count + op.k.count + op.v.count),
                    static_cast<unsigned>(context.n_rows)),
               128, 0, context.stream, context.pass, view);
}

void run_op(const Context& context, const plan::Attention& op) {
  const HeadsView gate = context.heads(op.gate);
  // The choice is by phase and not by rows: the pieces of a prompt give the same bits.
  if (context.prefill || context.n_rows > kMaxDecodeRows) {
    run_op(context, op.attend);
    if (gate.base == nullptr) return;
    const HeadsView out = context.heads(op.attend.out);
    gate_rows<<<dim3(static_cast<unsigned>((out.count * out.dim + kThreads - 1) / kThreads),
                     static_cast<unsigned>(context.n_rows)),
                kThreads, 0, context.stream>>>(context.count_of(op.attend.out.buffer), out, gate,
                                               op.gate_activation);
    return;
  }
  const AttendView view = view_of(context, op.attend);
  const int32_t group = op.attend.q.count / op.attend.n_kv_heads;
  const int32_t columns = op.attend.out.dim / 4;
  const int32_t strips = std::max(1, std::min(kThreads / columns, 8));
  const Partials partials = {reinterpret_cast<float*>(context.scratch), max_splits(context.limits),
                             op.attend.out.dim};
  const int shared = 4 * (group * op.attend.q.dim + group * kSplit + strips * group * columns * 4);
  const auto rows = static_cast<unsigned>(context.n_rows);
  const dim3 grid(
      static_cast<unsigned>(std::min((context.n_keys + kSplit - 1) / kSplit, partials.n_splits)),
      static_cast<unsigned>(op.attend.n_kv_heads), rows);
  if (group <= 4) {
    launch_group<4>(context, view, partials, grid, shared);
  } else if (group <= 8) {
    launch_group<8>(context, view, partials, grid, shared);
  } else {
    launch_group<kMaxGroup>(context, view, partials, grid, shared);
  }
  launch_early(merge_splits, dim3(static_cast<unsigned>(op.attend.q.count), rows), 128, 0,
               context.stream, context.pass, view, partials, gate, op.gate_activation);
}

}  // namespace kapitsa::backend::cuda
