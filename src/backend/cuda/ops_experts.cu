// The router's choice of experts and the weighted sum of their results.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;

struct RouterView {
  const float* logits;
  const float* bias;
  const float* expert_scale;
  int32_t* ids;
  float* weights;
  plan::RouterScore score;
  int32_t n_experts, top_k, n_groups, top_groups;
  bool renormalise;
  float scale;
};

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
  const int lane = static_cast<int>(threadIdx.x);
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
  const int lane = static_cast<int>(threadIdx.x);
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

// One warp for one row. Shared: scores, choice (n_experts each), group scores, flags.
__global__ void select_experts(const int32_t* count, RouterView r) {
  extern __shared__ float shared[];
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const int n = r.n_experts;
  if (row >= *count) return;
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
  const auto n = static_cast<size_t>(router.n_experts);
  const auto groups = static_cast<size_t>(router.n_groups);
  const size_t bytes = (2 * n + groups) * sizeof(float) + n + groups;
  select_experts<<<rows, kWarp, bytes, context.stream>>>(context.count_of(op.ids), view);
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
