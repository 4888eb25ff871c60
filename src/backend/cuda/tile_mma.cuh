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

// Registers of one step of four-bit codes, less `offset`.
__device__ inline void unpack4(uint32_t word, uint32_t offset, uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = subtract_half2(and_or(word >> (4 * i), 0x000F000FU, kOneK), offset);
}

// The same with two more bits of each code in `high`, eight codes of each half.
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
template <int kN>
__device__ void multiply_halves4(const uint4& codes, uint32_t offset, const float (&scales)[4],
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
      unpack4(word_of(codes, 2 * half + s), offset, a);
#pragma unroll
      for (int n = 0; n < kN; ++n)
        mma_f16(c[n], a, step_of(pair[n], s));
    }
#pragma unroll
    for (int n = 0; n < kN; ++n)
      add_scaled(acc.v[n], c[n], scales[half], scales[2 + half]);
  }
}

// offsets are m of (g, half 0), (g, 1), (g + 8, 0), (g + 8, 1).
template <int kN>
__device__ void add_half_offsets(const float (&offsets)[4], const GroupInput (&in)[kN],
                                 Accumulator<kN>& acc) {
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

// Bytes of one group in a unit, and where the unit's tail is.
constexpr int record_bytes(TileFormat format) {
  return format == TileFormat::q4_k   ? 512 + 64
         : format == TileFormat::q6_k ? 512 + 256 + 64
                                      : unit_bytes(format);
}

// acc += group * activations. `unit` is the group's part of its unit and `tail` what the unit has
// for all of its groups, both in shared memory.
template <int kN, bool kBf16>
struct UnitProduct {
  const uint8_t* unit;
  const uint8_t* tail;
  int lane;

  __device__ uint4 codes(int offset) const {
    return *reinterpret_cast<const uint4*>(unit + offset + lane * 16);
  }
  template <typename T>
  __device__ T at(int offset, int per_row) const {
    return *reinterpret_cast<const T*>(unit + offset + lane / 4 * per_row);
  }
  template <typename T>
  __device__ T tail_at(int per_row) const {
    return *reinterpret_cast<const T*>(tail + lane / 4 * per_row);
  }

  __device__ void q4(const GroupInput (&in)[kN], bool with_offset, Accumulator<kN>& acc) const {
    float scales[4];
    if (!with_offset) {
      unpack_scales(at<uint2>(512, 8), scales);
      multiply_halves4(codes(0), one_k_plus(8), scales, in, acc);
      return;
    }
    const auto both = at<uint4>(512, 16);
    float offsets[4];
    unpack_scales(make_uint2(both.x, both.y), scales);
    unpack_scales(make_uint2(both.z, both.w), offsets);
    multiply_halves4(codes(0), kOneK, scales, in, acc);
    add_half_offsets(offsets, in, acc);
  }

  __device__ void q4_k(const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
    const auto d = tail_at<uint2>(8);
    const float2 d0 = halves(d.x);  // d and dmin of row g
    const float2 d1 = halves(d.y);
    const auto q = at<uint2>(512, 8);
    const float scales[4] = {
        d0.x * static_cast<float>(q.x & 255U), d0.x * static_cast<float>(q.x >> 8 & 255U),
        d1.x * static_cast<float>(q.x >> 16 & 255U), d1.x * static_cast<float>(q.x >> 24)};
    const float offsets[4] = {
        -d0.y * static_cast<float>(q.y & 255U), -d0.y * static_cast<float>(q.y >> 8 & 255U),
        -d1.y * static_cast<float>(q.y >> 16 & 255U), -d1.y * static_cast<float>(q.y >> 24)};
    multiply_halves4(codes(0), kOneK, scales, in, acc);
    add_half_offsets(offsets, in, acc);
  }

  __device__ void q6_k(const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
    const float2 d = halves(tail_at<uint32_t>(4));
    const auto scales = at<uint2>(768, 8);
    const uint4 low = codes(0);
    const auto high = *reinterpret_cast<const uint2*>(unit + 512 + lane * 8);
    step6<0>(low, high, scales, d, in, acc);
    step6<1>(low, high, scales, d, in, acc);
    step6<2>(low, high, scales, d, in, acc);
    step6<3>(low, high, scales, d, in, acc);
  }
  template <int kStep>
  __device__ void step6(const uint4& low, const uint2& high, const uint2& scales, const float2& d,
                        const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
    uint32_t a[4];
    unpack6<kStep>(word_of(low, kStep), kStep < 2 ? high.x : high.y, a);
    const float s0 = d.x * static_cast<float>(static_cast<int8_t>(scales.x >> (8 * kStep)));
    const float s1 = d.y * static_cast<float>(static_cast<int8_t>(scales.y >> (8 * kStep)));
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      float c[4] = {};
      mma_f16(c, a, step_of(in[n].fragments(kStep / 2), kStep));
      add_scaled(acc.v[n], c, s0, s1);
    }
  }

  __device__ void q8_0(const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
    float scales[4];
    unpack_scales(at<uint2>(1024, 8), scales);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = codes(half * 512);
      uint32_t first[4];
      uint32_t second[4];
      unpack8(words.x, words.y, one_k_plus(128), first);
      unpack8(words.z, words.w, one_k_plus(128), second);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const uint4 pair = in[n].fragments(half);
        float c[4] = {};
        mma_f16(c, first, step_of(pair, 0));
        mma_f16(c, second, step_of(pair, 1));
        add_scaled(acc.v[n], c, scales[half], scales[2 + half]);
      }
    }
  }

  __device__ void wide(const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 words = codes(step / 2 * 512);
      uint32_t a[4];
      unpack8(step % 2 == 0 ? words.x : words.z, step % 2 == 0 ? words.y : words.w, kOneK, a);
      const auto s = at<float4>(1024 + step * 128, 16);  // scale, offset of g, then of g + 8
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float c[4] = {};
        mma_f16(c, a, step_of(in[n].fragments(step / 2), step));
        add_scaled(acc.v[n], c, s.x, s.z);
        add_offset(acc.v[n], in[n].sums(step), s.y, s.w);
      }
    }
  }

  __device__ void plain(const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 words = codes(step * 512);
      const uint32_t a[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        if constexpr (kBf16) {
          mma_bf16(acc.v[n], a, step_of(in[n].fragments(step / 2), step));
          mma_bf16(acc.v[n], a, step_of(in[n].fragments(step / 2, 1), step));
        } else {
          mma_f16(acc.v[n], a, step_of(in[n].fragments(step / 2), step));
        }
      }
    }
  }

  __device__ void add(TileFormat format, const GroupInput (&in)[kN], Accumulator<kN>& acc) const {
    if constexpr (kBf16) {
      plain(in, acc);
    } else {
      switch (format) {
      case TileFormat::q4_0: q4(in, false, acc); break;
      case TileFormat::q4_1: q4(in, true, acc); break;
      case TileFormat::q4_k: q4_k(in, acc); break;
      case TileFormat::q6_k: q6_k(in, acc); break;
      case TileFormat::q8_0: q8_0(in, acc); break;
      case TileFormat::wide: wide(in, acc); break;
      default: plain(in, acc); break;
      }
    }
  }
};

}  // namespace kapitsa::backend::cuda
