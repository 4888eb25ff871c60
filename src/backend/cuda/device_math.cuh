// Device helpers: sums over a warp or a block in one fixed order, and the elementwise functions in
// f32. The order of a sum depends on the number of threads alone, never on which rows there are.
#pragma once

#include "plan/types.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace kapitsa::backend::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

// Sum over the block, the same in every thread; `shared` holds one float for each warp. blockDim.x
// is a multiple of 32.
__device__ inline float block_sum(float value, float* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[warp] = value;
  __syncthreads();
  float sum = 0.0F;
  for (int w = 0; w < n_warps; ++w)
    sum += shared[w];
  __syncthreads();
  return sum;
}

__device__ inline float block_max(float value, float* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_max(value);
  if (threadIdx.x % kWarp == 0) shared[warp] = value;
  __syncthreads();
  float top = shared[0];
  for (int w = 1; w < n_warps; ++w)
    top = fmaxf(top, shared[w]);
  __syncthreads();
  return top;
}

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

__device__ inline float softplus(float x) {
  return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

__device__ inline float activate(plan::Activation function, float x) {
  switch (function) {
  case plan::Activation::identity: return x;
  case plan::Activation::silu: return x * sigmoid(x);
  case plan::Activation::gelu_tanh:
    return 0.5F * x * (1.0F + tanhf(0.7978845608F * (x + 0.044715F * x * x * x)));
  case plan::Activation::relu_squared: return x > 0 ? x * x : 0.0F;
  case plan::Activation::sigmoid: return sigmoid(x);
  case plan::Activation::softplus: return softplus(x);
  case plan::Activation::tanh: return tanhf(x);
  case plan::Activation::signed_sqrt: {
    const float root = sqrtf(fmaxf(fabsf(x), 1e-6F));
    return x > 0 ? root : x < 0 ? -root : 0.0F;
  }
  }
  return x;
}

// cos and sin of position * inv_freq. The product is kept in two floats: at 100,000 tokens its
// rounding alone would turn the pair by several thousandths of a radian.
__device__ inline void rope_angle(int32_t position, float inv_freq, float magnitude, float* c,
                                  float* s) {
  const auto p = static_cast<float>(position);
  const float high = __fmul_rn(p, inv_freq);
  const float low = __fmaf_rn(p, inv_freq, -high);
  float sin_high = 0.0F;
  float cos_high = 0.0F;
  sincosf(high, &sin_high, &cos_high);
  *c = magnitude * (cos_high - low * sin_high);
  *s = magnitude * (sin_high + low * cos_high);
}

}  // namespace kapitsa::backend::cuda
