// The router's choice of experts and the weighted sum of their results.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/experts.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kListRows = 8;  // rows of the pass in one ExpertList

struct Best {
  float value;
  int index;
};

// The best of the warp: the larger value, then the lower index; NaN is below everything. Lanes
// without a candidate have the index n.
__device__ Best warp_best(Best mine) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, mine.value, offset),
                        __shfl_xor_sync(kAllLanes, mine.index, offset)};
    if (other.value > mine.value || (other.value == mine.value && other.index < mine.index))
      mine = other;
  }
  return mine;
}

// The best of n values that are not taken; taken ones have a set flag.
__device__ Best pick(const float* values, const bool* taken, int n) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Best mine = {-INFINITY, n};
  for (int i = lane; i < n; i += kWarp) {
    if (taken[i]) continue;
    const float value = isnan(values[i]) ? -INFINITY : values[i];
    if (mine.index == n || value > mine.value) mine = {value, i};
  }
  return warp_best(mine);
}

// Marks the experts of all but the best groups as taken; a group counts its two best scores.
__device__ void drop_groups(const RouterView& r, const float* choice, bool* taken,
                            float* group_scores, bool* group_taken) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int size = r.n_experts / r.n_groups;
  for (int g = lane; g < r.n_groups; g += kWarp) {
    float first = -INFINITY;
    float second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float value = choice[e];
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    group_scores[g] = size > 1 ? first + second : first;
    group_taken[g] = false;
  }
  for (int e = lane; e < r.n_experts; e += kWarp)
    taken[e] = true;
  __syncwarp();
  for (int kept = 0; kept < r.top_groups; ++kept) {
    const Best best = pick(group_scores, group_taken, r.n_groups);
    for (int e = lane; e < size; e += kWarp)
      taken[best.index * size + e] = false;
    if (lane == 0) group_taken[best.index] = true;
    __syncwarp();
  }
}

// Bytes of shared memory for one row: scores, choice (n_experts each), group scores, flags.
__host__ __device__ int row_bytes(const RouterView& r) {
  const int bytes = (2 * r.n_experts + r.n_groups) * 4 + r.n_experts + r.n_groups;
  return (bytes + 3) / 4 * 4;
}

// One warp chooses for one row.
__device__ void select_row(const RouterView& r, int64_t row, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int n = r.n_experts;
  float* scores = shared;
  float* choice = scores + n;
  float* group_scores = choice + n;
  bool* taken = reinterpret_cast<bool*>(group_scores + r.n_groups);
  bool* group_taken = taken + n;
  const float* logits = r.logits + row * n;

  float top = -INFINITY;
  for (int e = lane; e < n; e += kWarp)
    top = fmaxf(top, logits[e]);
  top = warp_max(top);
  float sum = 0.0F;
  for (int e = lane; e < n; e += kWarp) {
    float score = logits[e];
    if (r.score == plan::RouterScore::softmax) score = expf(score - top);
    if (r.score == plan::RouterScore::sigmoid) score = sigmoid(score);
    scores[e] = score;
    sum += score;
  }
  if (r.score == plan::RouterScore::softmax) {
    sum = warp_sum(sum);
    for (int e = lane; e < n; e += kWarp)
      scores[e] /= sum;
  }
  for (int e = lane; e < n; e += kWarp) {
    choice[e] = scores[e] + (r.bias == nullptr ? 0.0F : r.bias[e]);
    taken[e] = false;
  }
  __syncwarp();
  if (r.n_groups > 1) drop_groups(r, choice, taken, group_scores, group_taken);

  int32_t* ids = r.ids + row * r.top_k;
  float* weights = r.weights + row * r.top_k;
  float first = 0.0F;
  float total = 0.0F;
  for (int j = 0; j < r.top_k; ++j) {
    const Best best = pick(choice, taken, n);
    float weight = scores[best.index];
    if (r.score == plan::RouterScore::softmax_selected) {
      if (j == 0) first = weight;
      weight = expf(weight - first);
    }
    total += weight;
    if (lane == 0) {
      taken[best.index] = true;
      ids[j] = best.index;
      weights[j] = weight;
    }
    __syncwarp();
  }
  for (int j = lane; j < r.top_k; j += kWarp) {
    float weight = weights[j];
    if (r.score == plan::RouterScore::softmax_selected) weight /= total;
    const float norm = r.score == plan::RouterScore::softmax_selected ? 1.0F : total;
    if (r.renormalise) weight /= norm + 1e-20F;
    weights[j] = weight * r.scale * (r.expert_scale == nullptr ? 1.0F : r.expert_scale[ids[j]]);
  }
}

__global__ void select_experts(const int32_t* count, RouterView r) {
  extern __shared__ float shared[];
  const int64_t row = blockIdx.x;
  if (row < *count) select_row(r, row, shared);
}

// Clears the slots of all experts; then each row's warp marks those that it chose.
__device__ void clear_slots(uint8_t* slots, int n_experts) {
  for (int i = static_cast<int>(threadIdx.x); i < n_experts * kListRows;
       i += static_cast<int>(blockDim.x))
    slots[i] = 255;
  __syncthreads();
}
__device__ void mark_slots(uint8_t* slots, const int32_t* ids, int top_k) {
  const int column = static_cast<int>(threadIdx.x) / kWarp;
  for (int j = static_cast<int>(threadIdx.x) % kWarp; j < top_k; j += kWarp)
    slots[ids[j] * kListRows + column] = static_cast<uint8_t>(j);
}

// Writes the list of a block of rows from the slots in shared memory.
__device__ void write_list(const uint8_t* slots, const ExpertList& list, int64_t block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int n_experts = list.n_experts;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n_experts * kListRows;
       i += static_cast<int>(blockDim.x))
    list.slots[block * n_experts * kListRows + i] = slots[i];
  if (threadIdx.x >= kWarp) return;
  int n = 0;
  for (int begin = 0; begin < n_experts; begin += kWarp) {
    const int e = begin + lane;
    bool chosen = false;
    for (int c = 0; e < n_experts && c < kListRows; ++c)
      chosen = chosen || slots[e * kListRows + c] != 255;
    const unsigned votes = __ballot_sync(kAllLanes, chosen);
    if (chosen) list.experts[block * n_experts + n + __popc(votes & ((1U << lane) - 1U))] = e;
    n += __popc(votes);
  }
  if (lane == 0) list.n_entries[block] = n;
}

// A block for eight rows: each warp chooses for one.
__global__ void route_rows(const int32_t* count, RouterView r, ExpertList list) {
  extern __shared__ float shared[];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t block = blockIdx.x;
  const int64_t row = block * kListRows + warp;
  const int bytes = row_bytes(r);
  auto* slots = reinterpret_cast<uint8_t*>(shared) + kListRows * bytes;
  start_dependents();
  wait_for_inputs();
  clear_slots(slots, r.n_experts);
  if (row < *count) {
    select_row(r, row, shared + warp * (bytes / 4));
    __syncwarp();
    mark_slots(slots, r.ids + row * r.top_k, r.top_k);
  }
  write_list(slots, list, block);
}

// The list of a choice that was made elsewhere.
__global__ void list_rows(const int32_t* count, const int32_t* ids, ExpertList list) {
  extern __shared__ uint8_t slots_of_block[];
  const int64_t block = blockIdx.x;
  const int64_t row = block * kListRows + threadIdx.x / kWarp;
  clear_slots(slots_of_block, list.n_experts);
  if (row < *count) mark_slots(slots_of_block, ids + row * list.top_k, list.top_k);
  write_list(slots_of_block, list, block);
}

// A warp for one output of an f32 router, for eight rows in turn.
__global__ void gate_rows(GateArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int o = static_cast<int>(blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp);
  const int64_t first = int64_t{blockIdx.y} * kListRows;
  start_dependents();
  if (o >= args.n_out) return;
  const float* w = args.weight + int64_t{o} * args.k;
  // The first weights are on their way before the inputs are there.
  constexpr int kBatch = 8;
  constexpr int kStep = 4 * kWarp;
  float4 weight[kBatch];
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    const int k = 4 * lane + b * kStep;
    weight[b] = k < args.k ? *reinterpret_cast<const float4*>(w + k) : float4{};
  }
  wait_for_inputs();
  const int64_t end = min(int64_t{*args.count}, first + kListRows);
  for (int64_t row = first; row < end; ++row) {
    float dot = 0.0F;
    float squares = 0.0F;
    for (int from = 4 * lane; from < args.k; from += kBatch * kStep) {
      float4 x[kBatch];
      float4 norm[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int k = from + b * kStep;
        const bool inside = k < args.k;
        if (args.k > kBatch * kStep || row > first)
          weight[b] = inside ? *reinterpret_cast<const float4*>(w + k) : float4{};
        x[b] = inside ? *reinterpret_cast<const float4*>(args.x + row * args.k + k) : float4{};
        norm[b] = inside && args.norm_weight != nullptr
                      ? *reinterpret_cast<const float4*>(args.norm_weight + k)
                      : make_float4(1.0F, 1.0F, 1.0F, 1.0F);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        squares += x[b].x * x[b].x + x[b].y * x[b].y + x[b].z * x[b].z + x[b].w * x[b].w;
        const float4 v = times(x[b], norm[b]);
        dot = fmaf(v.x, weight[b].x, dot);
        dot = fmaf(v.y, weight[b].y, dot);
        dot = fmaf(v.z, weight[b].z, dot);
        dot = fmaf(v.w, weight[b].w, dot);
      }
    }
    dot = warp_sum(dot);
    squares = warp_sum(squares);
    if (args.has_norm) dot /= sqrtf(squares / static_cast<float>(args.k) + args.norm_eps);
    if (lane == 0)
      args.out[row * args.n_out + o] = dot + (args.bias == nullptr ? 0.0F : args.bias[o]);
  }
}

__global__ void combine_experts(const int32_t* count, const float* in, const float* weights,
                                int32_t top_k, float* out, int64_t width) {
  const int64_t row = blockIdx.y;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= *count || i >= width) return;
  float sum = 0.0F;
  for (int32_t slot = 0; slot < top_k; ++slot)
    sum = fmaf(weights[row * top_k + slot], in[(row * top_k + slot) * width + i], sum);
  out[row * width + i] = sum;
}

}  // namespace

bool has_shape(const plan::Plan& /*plan*/, const plan::SelectExperts& op) {
  return op.router.n_experts <= 4096;  // shared memory
}

void run_op(const Context& context, const plan::SelectExperts& op) {
  context.listed = {};
  const plan::Router& router = op.router;
  const RouterView view = {.logits = context.f32(op.logits),
                           .bias = context.vector(router.selection_bias),
                           .expert_scale = context.vector(router.expert_scale),
                           .ids = context.i32(op.ids),
                           .weights = context.f32(op.weights),
                           .score = router.score,
                           .n_experts = router.n_experts,
                           .top_k = router.top_k,
                           .n_groups = router.n_groups,
                           .top_groups = router.top_groups,
                           .renormalise = router.renormalise,
                           .scale = router.scale};
  const int32_t rows = context.rows_of(op.ids);
  if (rows == 0) return;
  select_experts<<<rows, kWarp, static_cast<size_t>(row_bytes(view)), context.stream>>>(
      context.count_of(op.ids), view);
}

void launch_route(const int32_t* count, const RouterView& router, const ExpertList& list,
                  int32_t n_rows, cudaStream_t stream) {
  if (n_rows == 0) return;
  const int bytes = kListRows * (row_bytes(router) + router.n_experts);
  static const bool prepared = [] {
    return cudaFuncSetAttribute(route_rows, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                96 * 1024) == cudaSuccess;
  }();
  static_cast<void>(prepared);
  launch_early(route_rows, dim3(static_cast<unsigned>((n_rows + kListRows - 1) / kListRows)),
               kListRows * kWarp, bytes, stream, count, router, list);
}

void launch_list(const int32_t* count, const int32_t* ids, const ExpertList& list, int32_t n_rows,
                 cudaStream_t stream) {
  if (n_rows == 0) return;
  list_rows<<<(n_rows + kListRows - 1) / kListRows, kListRows * kWarp,
              static_cast<size_t>(list.n_experts) * kListRows, stream>>>(count, ids, list);
}

void launch_gate(const GateArgs& args, int32_t n_rows, cudaStream_t stream) {
  if (n_rows == 0) return;
  constexpr int kGateWarps = 4;
  launch_early(gate_rows,
               dim3(static_cast<unsigned>((args.n_out + kGateWarps - 1) / kGateWarps),
                    static_cast<unsigned>((n_rows + kListRows - 1) / kListRows)),
               kGateWarps * kWarp, 0, stream, args);
}

void run_op(const Context& context, const plan::CombineExperts& op) {
  const int64_t width = context.width(op.out);
  const dim3 grid(static_cast<unsigned>((width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(context.rows_of(op.out)));
  if (grid.y == 0) return;
  combine_experts<<<grid, kThreads, 0, context.stream>>>(
      context.count_of(op.out), context.f32(op.in), context.f32(op.weights),
      static_cast<int32_t>(context.width(op.weights)), context.f32(op.out), width);
}

}  // namespace kapitsa::backend::cuda
