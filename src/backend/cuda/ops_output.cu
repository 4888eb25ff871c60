// The end of a pass: the rows whose logits are wanted, and the best of their logits.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTopThreads = 1024;

__global__ void gather_outputs(PassView pass, const float* in, float* out, int64_t width) {
  const int64_t row = blockIdx.y;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= pass.counts[PassView::kOutputs] || i >= width) return;
  out[row * width + i] = in[pass.outputs[row] * width + i];
}

struct TopView {
  const float* logits;
  int32_t* ids;
  float* values;
  float* log_sum_exp;
  int64_t width;
  int32_t k;
};

// NaN counts as less than every number.
__device__ float rank_of(float value) {
  return isnan(value) ? -INFINITY : value;
}

// A block for one row. Each turn finds the best logit after the one before, in the order of falling
// value and rising index.
__global__ void __launch_bounds__(kTopThreads) top_logits(const int32_t* count, TopView t) {
  __shared__ float partial[kWarp];
  __shared__ float warp_value[kWarp];
  __shared__ int32_t warp_index[kWarp];
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  if (row >= *count) return;
  const float* logits = t.logits + row * t.width;
  const auto n = static_cast<int32_t>(t.width);
  float last = INFINITY;
  int32_t last_index = -1;
  float top = 0.0F;
  for (int32_t j = 0; j < t.k; ++j) {
    float best = -INFINITY;
    int32_t index = n;
    for (int32_t i = thread; i < n; i += kTopThreads) {
      const float value = rank_of(logits[i]);
      if (value > last || (value == last && i <= last_index)) continue;
      if (index == n || value > best) {
        best = value;
        index = i;
      }
    }
    const auto meet = [&](float value, int32_t i) {
      if (i < n && (index == n || value > best || (value == best && i < index))) {
        best = value;
        index = i;
      }
    };
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      meet(__shfl_xor_sync(kAllLanes, best, offset), __shfl_xor_sync(kAllLanes, index, offset));
    if (thread % kWarp == 0) {
      warp_value[thread / kWarp] = best;
      warp_index[thread / kWarp] = index;
    }
    __syncthreads();
    for (int w = 0; w < kTopThreads / kWarp; ++w)
      meet(warp_value[w], warp_index[w]);
    __syncthreads();
    if (j == 0) top = best;
    last = best;
    last_index = index;
    if (thread == 0) {
      t.ids[row * t.k + j] = index;
      t.values[row * t.k + j] = logits[index];
    }
  }
  float sum = 0.0F;
  for (int32_t i = thread; i < n; i += kTopThreads)
    sum += expf(logits[i] - top);
  sum = block_sum(sum, partial);
  if (thread == 0) t.log_sum_exp[row] = top + logf(sum);
}

}  // namespace

bool has_shape(const plan::Plan& plan, const plan::TopLogits& op) {
  return plan.buffer(op.ids).width <= plan.buffer(op.logits).width;
}

void run_op(const Context& context, const plan::GatherOutputs& op) {
  const int64_t width = context.width(op.in);
  if (context.n_outputs == 0) return;
  const dim3 grid(static_cast<unsigned>((width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(context.n_outputs));
  gather_outputs<<<grid, kThreads, 0, context.stream>>>(context.pass, context.f32(op.in),
                                                        context.f32(op.out), width);
}

void run_op(const Context& context, const plan::TopLogits& op) {
  const TopView view = {context.f32(op.logits),   context.i32(op.ids),
                        context.f32(op.values),   context.f32(op.log_sum_exp),
                        context.width(op.logits), static_cast<int32_t>(context.width(op.ids))};
  const int32_t rows = context.rows_of(op.logits);
  if (rows == 0) return;
  top_logits<<<rows, kTopThreads, 0, context.stream>>>(context.count_of(op.logits), view);
}

}  // namespace kapitsa::backend::cuda
