// Reads one element of a weight in the encoding of its file, exactly: every encoding is a code
// times a scale plus an offset, in the order of operations of weights/codec.h and
// weights/mlx_codec.h.
#pragma once

#include "backend/cuda/views.h"
#include "weights/codec.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace kapitsa::backend::cuda {

// value = code * scale + offset, each operation rounded; codes of quantised types are integers of
// at most 127 in size, or E4M3 numbers.
struct Coded {
  float code, scale, offset;
};

__device__ inline float value_of(const Coded& coded) {
  return __fadd_rn(__fmul_rn(coded.code, coded.scale), coded.offset);
}

// One row of a matrix: its codes and, for DType::grouped, its scales and biases.
struct WeightRow {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* biases;
  float factor;
};

__device__ inline WeightRow row_of(const WeightView& w, int64_t expert, int64_t row) {
  const int64_t index = expert * w.out + row;
  return {w.data + expert * w.matrix_bytes + row * w.row_bytes,
          w.scales == nullptr ? nullptr : w.scales + index * w.scale_row_bytes,
          w.biases == nullptr ? nullptr : w.biases + index * w.scale_row_bytes,
          w.factor == nullptr ? 1.0F : w.factor[w.n_factors == 1 ? 0 : expert]};
}

namespace detail {

struct CodeBook {
  int8_t values[16];
};
constexpr CodeBook copy_book(const int8_t (&values)[16]) {
  CodeBook book = {};
  for (int i = 0; i < 16; ++i)
    book.values[i] = values[i];
  return book;
}
__device__ constexpr CodeBook kIq4 = copy_book(weights::kIq4Values);
__device__ constexpr CodeBook kE2m1 = copy_book(weights::kE2m1Doubled);

// Matrices start on aligned addresses, and every f16 field lies on an even one.
__device__ inline float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const unsigned short*>(p)));
}
__device__ inline float bf16_at(const uint8_t* p) {
  return __uint_as_float(static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(p)) << 16);
}
__device__ inline float f32_at(const uint8_t* p) {
  return *reinterpret_cast<const float*>(p);
}

// Value j of 2n split nibbles (codec.h).
__device__ inline int split_nibble(const uint8_t* bytes, int j, int n) {
  return j < n ? bytes[j] & 15 : bytes[j - n] >> 4;
}
__device__ inline int fifth_bit(const uint8_t* qh, int j) {
  return ((qh[j / 8] >> (j % 8)) & 1) << 4;
}

template <typename Block>
__device__ const Block* block_at(const uint8_t* row, int64_t k, int n) {
  return reinterpret_cast<const Block*>(row + k / n * static_cast<int64_t>(sizeof(Block)));
}

__device__ inline float scale_number(const uint8_t* p, int64_t i, DType dtype) {
  if (dtype == DType::f32) return f32_at(p + 4 * i);
  return dtype == DType::f16 ? half_at(p + 2 * i) : bf16_at(p + 2 * i);
}

__device__ inline float e4m3(uint8_t byte) {
  const uint8_t magnitude = byte & 0x7F;
  if (magnitude == 0x7F) return __uint_as_float(0x7FC00000U);
  const float value = weights::ue4m3_halved(magnitude) * 2.0F;
  return (byte & 0x80) != 0 ? -value : value;
}

__device__ inline Coded grouped_at(const WeightView& w, const WeightRow& row, int64_t k) {
  const int bits = w.group.bits;
  const int64_t first = k * bits;
  const int64_t byte = first / 8;
  uint32_t window = row.codes[byte];
  if (byte + 1 < w.row_bytes) window |= static_cast<uint32_t>(row.codes[byte + 1]) << 8;
  const uint32_t q = (window >> (first % 8)) & ((1U << bits) - 1U);
  const int64_t g = k / w.group.group;
  switch (w.group.mode) {
  case GroupMode::affine:
    return {static_cast<float>(q), scale_number(row.scales, g, w.scale_dtype),
            scale_number(row.biases, g, w.scale_dtype)};
  case GroupMode::mxfp8:
    return {e4m3(static_cast<uint8_t>(q)), weights::e8m0_halved(row.scales[g]) * 2.0F, 0.0F};
  case GroupMode::mxfp4:
    return {static_cast<float>(kE2m1.values[q]), weights::e8m0_halved(row.scales[g]), 0.0F};
  case GroupMode::nvfp4:
    return {static_cast<float>(kE2m1.values[q]), e4m3(row.scales[g]) * 0.5F, 0.0F};
  }
  return {};
}

__device__ inline Coded q4_k_at(const uint8_t* block, int i, bool fifth) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const int j = i / 32;
  const int l = i % 32;
  const weights::KScaleMin sm = weights::k_scale_min(block + 4, j);
  const uint8_t* qh = block + 16;
  const uint8_t* qs = fifth ? qh + 32 : qh;
  int q = (qs[32 * (j / 2) + l] >> (4 * (j % 2))) & 15;
  if (fifth) q |= ((qh[l] >> j) & 1) << 4;
  return {static_cast<float>(q), d * static_cast<float>(sm.scale),
          -(dmin * static_cast<float>(sm.min))};
}

__device__ inline Coded q6_k_at(const weights::BlockQ6_K& b, int i) {
  const int half = i / 128;
  const int part = i % 128 / 32;
  const int l = i % 32;
  const int low = (b.ql[64 * half + 32 * (part % 2) + l] >> (4 * (part / 2))) & 15;
  const int high = (b.qh[32 * half + l] >> (2 * part)) & 3;
  const float d = half_at(reinterpret_cast<const uint8_t*>(&b.d));
  return {static_cast<float>((low | (high << 4)) - 32), d * static_cast<float>(b.scales[i / 16]),
          0.0F};
}

__device__ inline Coded small_k_at(DType dtype, const uint8_t* row, int64_t k) {
  const int i = static_cast<int>(k % 256);
  const int shift = 2 * (i % 128 / 32);
  const int byte = 32 * (i / 128) + i % 32;
  if (dtype == DType::q2_k) {
    const auto* b = block_at<weights::BlockQ2_K>(row, k, 256);
    const uint8_t scale = b->scales[i / 16];
    return {
        static_cast<float>((b->qs[byte] >> shift) & 3),
        half_at(reinterpret_cast<const uint8_t*>(&b->d)) * static_cast<float>(scale & 15),
        -(half_at(reinterpret_cast<const uint8_t*>(&b->dmin)) * static_cast<float>(scale >> 4))};
  }
  const auto* b = block_at<weights::BlockQ3_K>(row, k, 256);
  const bool set = ((b->hmask[i % 32] >> (i / 32)) & 1) != 0;
  return {static_cast<float>(((b->qs[byte] >> shift) & 3) - (set ? 0 : 4)),
          half_at(reinterpret_cast<const uint8_t*>(&b->d)) *
              static_cast<float>(weights::q3_k_scale(b->scales, i / 16)),
          0.0F};
}

__device__ inline Coded iq4_xs_at(const weights::BlockIq4Xs& b, int i) {
  const int j = i / 32;
  const int low = (b.scales_l[j / 2] >> (4 * (j % 2))) & 15;
  const auto* high_bytes = reinterpret_cast<const uint8_t*>(&b.scales_h);
  const int high = ((high_bytes[0] | (high_bytes[1] << 8)) >> (2 * j)) & 3;
  const float d = half_at(reinterpret_cast<const uint8_t*>(&b.d));
  return {static_cast<float>(kIq4.values[split_nibble(b.qs + 16 * j, i % 32, 16)]),
          d * static_cast<float>((low | (high << 4)) - 32), 0.0F};
}

}  // namespace detail

// Element k of a row, without the weight's factor.
__device__ inline Coded coded_at(const WeightView& w, const WeightRow& row, int64_t k) {
  using namespace detail;
  const int j = static_cast<int>(k % 32);
  const uint8_t* codes = row.codes;
  switch (w.dtype) {
  case DType::f32: return {f32_at(codes + 4 * k), 1.0F, 0.0F};
  case DType::f16: return {half_at(codes + 2 * k), 1.0F, 0.0F};
  case DType::bf16: return {bf16_at(codes + 2 * k), 1.0F, 0.0F};
  case DType::grouped: return grouped_at(w, row, k);
  case DType::q4_0: {
    const uint8_t* b = codes + k / 32 * 18;
    return {static_cast<float>(split_nibble(b + 2, j, 16) - 8), half_at(b), 0.0F};
  }
  case DType::q4_1: {
    const uint8_t* b = codes + k / 32 * 20;
    return {static_cast<float>(split_nibble(b + 4, j, 16)), half_at(b), half_at(b + 2)};
  }
  case DType::q5_0: {
    const uint8_t* b = codes + k / 32 * 22;
    return {static_cast<float>((split_nibble(b + 6, j, 16) | fifth_bit(b + 2, j)) - 16), half_at(b),
            0.0F};
  }
  case DType::q5_1: {
    const uint8_t* b = codes + k / 32 * 24;
    return {static_cast<float>(split_nibble(b + 8, j, 16) | fifth_bit(b + 4, j)), half_at(b),
            half_at(b + 2)};
  }
  case DType::q8_0: {
    const uint8_t* b = codes + k / 32 * 34;
    return {static_cast<float>(static_cast<int8_t>(b[2 + j])), half_at(b), 0.0F};
  }
  case DType::iq4_nl: {
    const uint8_t* b = codes + k / 32 * 18;
    return {static_cast<float>(kIq4.values[split_nibble(b + 2, j, 16)]), half_at(b), 0.0F};
  }
  case DType::mxfp4: {
    const uint8_t* b = codes + k / 32 * 17;
    return {static_cast<float>(kE2m1.values[split_nibble(b + 1, j, 16)]),
            weights::e8m0_halved(b[0]), 0.0F};
  }
  case DType::nvfp4: {
    const uint8_t* b = codes + k / 64 * 36;
    const int run = static_cast<int>(k % 64) / 16;
    return {static_cast<float>(
                kE2m1.values[split_nibble(b + 4 + 8 * run, static_cast<int>(k % 16), 8)]),
            weights::ue4m3_halved(b[run]), 0.0F};
  }
  case DType::q2_k:
  case DType::q3_k: return small_k_at(w.dtype, codes, k);
  case DType::q4_k: return q4_k_at(codes + k / 256 * 144, static_cast<int>(k % 256), false);
  case DType::q5_k: return q4_k_at(codes + k / 256 * 176, static_cast<int>(k % 256), true);
  case DType::q6_k:
    return q6_k_at(*block_at<weights::BlockQ6_K>(codes, k, 256), static_cast<int>(k % 256));
  case DType::iq4_xs:
    return iq4_xs_at(*block_at<weights::BlockIq4Xs>(codes, k, 256), static_cast<int>(k % 256));
  default: return {__uint_as_float(0x7FC00000U), 1.0F, 0.0F};
  }
}

__device__ inline float decode_at(const WeightView& w, const WeightRow& row, int64_t k) {
  return __fmul_rn(value_of(coded_at(w, row, k)), row.factor);
}

}  // namespace kapitsa::backend::cuda
