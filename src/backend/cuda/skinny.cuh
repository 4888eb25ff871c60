// What the kernels of skinny.cu and experts.cu share: copies into shared memory, the start of
// dependent kernels, and activations as f16 fragments.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/tile_mma.cuh"

namespace kapitsa::backend::cuda {

__device__ inline void copy_async(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// What the block knows of its rows.
struct RowFacts {
  float scale[4 * kColumns];   // of the f16 activations, a power of two
  float finish[4 * kColumns];  // by which results are multiplied: 1 / scale, and the norm's factor
};

__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

__device__ inline uint32_t pack(float a, float b, bool bf16) {
  if (bf16) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  const __half2 v = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline float2 unpack(uint32_t bits, bool bf16) {
  if (bf16) return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
  return halves(bits);
}

// Sixteen bytes of fragments: this lane's part of steps 2 plane and 2 plane + 1 of one group and
// one column block, and the steps' sums. values(k) gives four activations from k on, scaled; k
// counts from the group's start. All lanes of the warp call it.
template <bool kBf16, typename Values>
__device__ void write_fragments(uint8_t* base, int plane, int lane, Values values) {
  uint32_t high[4];
  uint32_t low[4];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float4 v = values(16 * (2 * plane + s) + 4 * (lane % 4));
    high[2 * s] = pack(v.x, v.y, kBf16);
    high[2 * s + 1] = pack(v.z, v.w, kBf16);
    const float2 a = unpack(high[2 * s], kBf16);
    const float2 b = unpack(high[2 * s + 1], kBf16);
    if constexpr (kBf16) {
      low[2 * s] = pack(v.x - a.x, v.y - a.y, true);
      low[2 * s + 1] = pack(v.z - b.x, v.w - b.y, true);
    } else {
      float sum = a.x + a.y + b.x + b.y;
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (lane % 4 == 0)
        reinterpret_cast<float*>(base + kFragmentBytes)[(2 * plane + s) * kColumns + lane / 4] =
            sum;
    }
  }
  *reinterpret_cast<uint4*>(base + plane * 512 + lane * 16) =
      make_uint4(high[0], high[1], high[2], high[3]);
  if constexpr (kBf16)
    *reinterpret_cast<uint4*>(base + kFragmentBytes + plane * 512 + lane * 16) =
        make_uint4(low[0], low[1], low[2], low[3]);
}

__device__ inline float largest_of(const float4& v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// The power of two that brings `largest` to 2^13..2^14, as an exponent.
__device__ inline int scale_exponent(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return largest > 0 ? min(max(13 - exponent, -126), 126) : 0;
}

}  // namespace kapitsa::backend::cuda
