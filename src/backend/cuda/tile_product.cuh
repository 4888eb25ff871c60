// The product of one group of a tile with activations, for every format of tiles.h.
#pragma once

#include "backend/cuda/tile_mma.cuh"

namespace kapitsa::backend::cuda {

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
      multiply_halves4<true>(codes(0), scales, in, acc);
      return;
    }
    const auto both = at<uint4>(512, 16);
    float offsets[4];
    unpack_scales(make_uint2(both.x, both.y), scales);
    unpack_scales(make_uint2(both.z, both.w), offsets);
    multiply_halves4<false>(codes(0), scales, in, acc);
    add_half_offsets(offsets, scales, in, acc);
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
    multiply_halves4<false>(codes(0), scales, in, acc);
    add_half_offsets(offsets, scales, in, acc);
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
