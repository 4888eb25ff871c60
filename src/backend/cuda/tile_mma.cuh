// The inner product of a tile with eight rows of activations, on tensor cores: weights are the A
// operand (16 rows), activations the B operand (8 columns). A column of the result depends on that
// column of B alone, so a row of a pass has the same bits whatever is in the other columns.
//
// Activations are f16, scaled by a power of two that a warp chooses for each row from the largest
// value in its part of k: no value overflows, and none loses bits before it is 2^-28 of the
// largest. bf16 weights meet bf16 activations in two parts, the second one what the first rounded
// away. Codes become f16 exactly, by their bits in the mantissa of 1024.
#pragma once

#include "backend/cuda/tiles.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace kapitsa::backend::cuda {

inline constexpr int kColumns = 8;  // rows of the pass in one B operand

// Shared memory of one group of activations for kColumns rows: fragments of steps 0, 1 and of 2, 3
// (16 bytes a lane each), a second part for bf16, and the sums of each step (4, kColumns).
inline constexpr int kFragmentBytes = 1024;
inline constexpr int kSumBytes = 4 * kColumns * 4;
constexpr int fragment_bytes(bool bf16) {
  return (bf16 ? 2 : 1) * kFragmentBytes + kSumBytes;
}

struct Fragment {
  uint32_t b0, b1;
};

__device__ inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], const Fragment& b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.b0), "r"(b.b1));
}

__device__ inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const Fragment& b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
      "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.b0), "r"(b.b1));
}

// (a & b) | c in one instruction; in C it becomes two, because an instruction holds one constant,
// and integer instructions have half rate.
__device__ inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r = 0;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

__device__ inline uint32_t subtract_half2(uint32_t a, uint32_t b) {
  const __half2 d =
      __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&d);
}

inline constexpr uint32_t kOneK = 0x64006400U;  // 1024 twice
// 1024 + n twice, exact for n < 1024.
constexpr uint32_t one_k_plus(uint32_t n) {
  return (0x6400U + n) * 0x10001U;
}

// Registers of one step of four-bit codes. Those of row g are 1024 + q, those of row g + 8, which
// lie four bits higher, 1024 + 16 q: what a shift would cost, the scale of the row takes in. With
// kCentred they are q - 8 and 16 (q - 8).
inline constexpr float kUpperRow = 1.0F / 16.0F;
template <bool kCentred>
__device__ inline void unpack4(uint32_t word, uint32_t (&a)[4]) {
  a[0] = and_or(word, 0x000F000FU, kOneK);
  a[1] = and_or(word, 0x00F000F0U, kOneK);
  a[2] = and_or(word >> 8, 0x000F000FU, kOneK);
  a[3] = and_or(word >> 8, 0x00F000F0U, kOneK);
  if constexpr (kCentred) {
    a[0] = subtract_half2(a[0], one_k_plus(8));
    a[1] = subtract_half2(a[1], one_k_plus(16 * 8));
    a[2] = subtract_half2(a[2], one_k_plus(8));
    a[3] = subtract_half2(a[3], one_k_plus(16 * 8));
  }
}

// Codes of six bits, less 32: four bits as above and two more of each code in `high`, eight codes
// of each half.
template <int kStep>
__device__ inline void unpack6(uint32_t word, uint32_t high, uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = 2 * (4 * (kStep % 2) + i);  // to bits 4 and 5
    const uint32_t moved = at < 4 ? high << (4 - at) : high >> (at - 4);
    const uint32_t low = and_or(word >> (4 * i), 0x000F000FU, kOneK);
    a[i] = subtract_half2(and_or(moved, 0x00300030U, low), one_k_plus(32));
  }
}

__device__ inline void unpack8(uint32_t first, uint32_t second, uint32_t offset, uint32_t (&a)[4]) {
  a[0] = subtract_half2(__byte_perm(first, kOneK, 0x5150), offset);
  a[1] = subtract_half2(__byte_perm(first, kOneK, 0x5352), offset);
  a[2] = subtract_half2(__byte_perm(second, kOneK, 0x5150), offset);
  a[3] = subtract_half2(__byte_perm(second, kOneK, 0x5352), offset);
}

__device__ inline float2 halves(uint32_t bits) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}

__device__ inline uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// What a lane holds of a 16 x 8 result: rows g and g + 8, columns 2 t and 2 t + 1, for each of kN
// operands of eight columns.
template <int kN>
struct Accumulator {
  float v[kN][4] = {};
};

// The activations of one group in shared memory.
struct GroupInput {
  const uint8_t* base;
  int lane;
  // Both fragments of steps 2 p and 2 p + 1.
  __device__ uint4 fragments(int p, int part = 0) const {
    return *reinterpret_cast<const uint4*>(base + part * kFragmentBytes + p * 512 + lane * 16);
  }
  // Sums over the step's 16 elements, of columns 2 t and 2 t + 1.
  __device__ float2 sums(int step, bool bf16 = false) const {
    const uint8_t* sums = base + (bf16 ? 2 : 1) * kFragmentBytes;
    return *reinterpret_cast<const float2*>(sums + (step * kColumns + 2 * (lane % 4)) * 4);
  }
};

__device__ inline Fragment step_of(const uint4& pair, int step) {
  return step % 2 == 0 ? Fragment{pair.x, pair.y} : Fragment{pair.z, pair.w};
}

// acc += scale0 * c for row g, scale1 * c for row g + 8.
__device__ inline void add_scaled(float (&acc)[4], const float (&c)[4], float scale0,
                                  float scale1) {
  acc[0] = fmaf(scale0, c[0], acc[0]);
  acc[1] = fmaf(scale0, c[1], acc[1]);
  acc[2] = fmaf(scale1, c[2], acc[2]);
  acc[3] = fmaf(scale1, c[3], acc[3]);
}
// acc += offset0 * sums for row g, offset1 * sums for row g + 8.
__device__ inline void add_offset(float (&acc)[4], const float2& sums, float offset0,
                                  float offset1) {
  acc[0] = fmaf(offset0, sums.x, acc[0]);
  acc[1] = fmaf(offset0, sums.y, acc[1]);
  acc[2] = fmaf(offset1, sums.x, acc[2]);
  acc[3] = fmaf(offset1, sums.y, acc[3]);
}

// Multiplies halves of a group: codes of four bits with a scale for each 32 elements and row.
// `scales` are d of (g, half 0), (g, 1), (g + 8, 0), (g + 8, 1).
template <bool kCentred, int kN>
__device__ void multiply_halves4(const uint4& codes, const float (&scales)[4],
                                 const GroupInput (&in)[kN], Accumulator<kN>& acc) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float c[kN][4] = {};
    uint4 pair[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n)
      pair[n] = in[n].fragments(half);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint32_t a[4];
      unpack4<kCentred>(word_of(codes, 2 * half + s), a);
#pragma unroll
      for (int n = 0; n < kN; ++n)
        mma_f16(c[n], a, step_of(pair[n], s));
    }
#pragma unroll
    for (int n = 0; n < kN; ++n)
      add_scaled(acc.v[n], c[n], scales[half], kUpperRow * scales[2 + half]);
  }
}

// offsets are m of (g, half 0), (g, 1), (g + 8, 0), (g + 8, 1); the 1024 of codes that are not
// centred is taken away here too.
template <int kN>
__device__ void add_half_offsets(const float (&m)[4], const float (&scales)[4],
                                 const GroupInput (&in)[kN], Accumulator<kN>& acc) {
  const float offsets[4] = {fmaf(-1024.0F, scales[0], m[0]), fmaf(-1024.0F, scales[1], m[1]),
                            fmaf(-1024.0F * kUpperRow, scales[2], m[2]),
                            fmaf(-1024.0F * kUpperRow, scales[3], m[3])};
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 first = in[n].sums(2 * half);
      const float2 second = in[n].sums(2 * half + 1);
      add_offset(acc.v[n], make_float2(first.x + second.x, first.y + second.y), offsets[half],
                 offsets[2 + half]);
    }
  }
}

__device__ inline void unpack_scales(const uint2& four, float (&scales)[4]) {
  const float2 a = halves(four.x);
  const float2 b = halves(four.y);
  scales[0] = a.x;
  scales[1] = a.y;
  scales[2] = b.x;
  scales[3] = b.y;
}

}  // namespace kapitsa::backend::cuda
