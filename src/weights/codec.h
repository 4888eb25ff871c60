// The block formats of GGUF weights: their layouts, the tables and bit tricks that kernels share,
// and the reference decoder that kernels are tested against. A row of a quantised tensor is a whole
// number of blocks, one after another; nothing is shared between blocks.
//
// All numbers are little endian; f16 fields are IEEE half bit patterns (base/half.h). The formulas
// are in f32 and their order of operations is part of the contract: dequantise() gives the same
// bits as the reference (ggml-quants.c in the ggml repository). Products are written x * y * z for
// (x * y) * z; no multiply-add is fused.
//
// Nibble order: "split nibbles" means that in each group of 2n values, byte j holds value j in its
// low and value j + n in its high nibble.
#pragma once

#include "base/dtype.h"
#include "base/result.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kapitsa::weights {

// ---- Blocks of 32 values -------------------------------------------------------------------

// w = d * (q - 8), q in 0..15; split nibbles, n = 16.
struct BlockQ4_0 {
  uint16_t d;  // f16
  uint8_t qs[16];
};

// w = d * q + m, q in 0..15; split nibbles, n = 16.
struct BlockQ4_1 {
  uint16_t d, m;  // f16
  uint8_t qs[16];
};

// w = d * (q - 16), q in 0..31: low four bits in qs (split nibbles, n = 16), the fifth bit of value
// j is bit j of qh taken as one 32-bit number.
struct BlockQ5_0 {
  uint16_t d;  // f16
  uint8_t qh[4];
  uint8_t qs[16];
};

// w = d * q + m, q as in Q5_0.
struct BlockQ5_1 {
  uint16_t d, m;  // f16
  uint8_t qh[4];
  uint8_t qs[16];
};

// w = d * q, q signed.
struct BlockQ8_0 {
  uint16_t d;  // f16
  int8_t qs[32];
};

// w = d * kIq4Values[q]; split nibbles, n = 16.
struct BlockIq4Nl {
  uint16_t d;  // f16
  uint8_t qs[16];
};

// OCP microscaling. w = kE2m1Doubled[q] * e8m0_halved(e), that is e2m1 * 2^(e - 127); split
// nibbles, n = 16.
struct BlockMxfp4 {
  uint8_t e;
  uint8_t qs[16];
};

// ---- A block of 64 values ------------------------------------------------------------------

// Four runs of 16: run s has scale d[s] and bytes qs[8s..8s+7], split nibbles, n = 8.
// w = kE2m1Doubled[q] * ue4m3_halved(d[s]). The tensor's own scale is a separate tensor and is
// not applied here.
struct BlockNvfp4 {
  uint8_t d[4];
  uint8_t qs[32];
};

// ---- Blocks of 256 values ("K" types) ------------------------------------------------------

// Eight sub-blocks j of 32: w = (d * sc[j]) * q - (dmin * m[j]), q in 0..15, sc and m from
// k_scale_min(). Sub-blocks 2p and 2p + 1 share bytes qs[32p..32p+31]: low nibbles are 2p, high
// nibbles 2p + 1 (split nibbles, n = 32).
struct BlockQ4_K {
  uint16_t d, dmin;  // f16
  uint8_t scales[12];
  uint8_t qs[128];
};

// As Q4_K with q in 0..31: the fifth bit of value l of sub-block j is bit j of qh[l].
struct BlockQ5_K {
  uint16_t d, dmin;  // f16
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// Two halves h of 128 with ql[64h..], qh[32h..], scales[8h..]. In a half, for l in 0..31:
//   value l       low nibble of ql[l],       qh[l] bits 0-1
//   value l + 32  low nibble of ql[l + 32],  qh[l] bits 2-3
//   value l + 64  high nibble of ql[l],      qh[l] bits 4-5
//   value l + 96  high nibble of ql[l + 32], qh[l] bits 6-7
// The qh bits are bits 4-5 of q. Value i has scale i / 16: w = d * sc * (q - 32).
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;  // f16
};

// Sixteen runs i of 16: w = (d * (scales[i] & 15)) * q - (dmin * (scales[i] >> 4)), q in 0..3.
// Half h of 128 values takes bytes qs[32h..32h+31]: value 32k + l of the half is bits 2k and 2k + 1
// of byte l (k in 0..3, l in 0..31).
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d, dmin;  // f16
};

// Runs and low bits as in Q2_K. The third bit of value 32k + l of half h is bit 4h + k of hmask[l],
// and q has an offset of 4: w = (d * sc) * (low bits - (bit set ? 0 : 4)). sc = q3_k_scale().
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;  // f16
};

// Eight sub-blocks j of 32 with bytes qs[16j..16j+15] (split nibbles, n = 16):
// w = (d * (ls - 32)) * kIq4Values[q], ls = low nibble j of scales_l | bits 2j, 2j + 1 of
// scales_h << 4.
struct BlockIq4Xs {
  uint16_t d;  // f16
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockIq4Nl) == 18);
static_assert(sizeof(BlockMxfp4) == 17 && sizeof(BlockNvfp4) == 36 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockIq4Xs) == 136);

// The IQ types are in weights/iq_blocks.h.

// ---- Tables and scale arithmetic -----------------------------------------------------------

// The non-uniform code book of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 (sign, two exponent bits, one mantissa bit) times two, so that it is an integer.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// The eight six-bit scales and mins of Q4_K and Q5_K in 12 bytes s: for j < 4, the low six bits of
// s[j] and s[j + 4]; for j >= 4, the nibbles of s[j + 4] with the two top bits of s[j - 4] and s[j]
// above them.
struct KScaleMin {
  uint8_t scale, min;
};
constexpr KScaleMin k_scale_min(const uint8_t* s, int j) {
  if (j < 4) return {static_cast<uint8_t>(s[j] & 63), static_cast<uint8_t>(s[j + 4] & 63)};
  return {static_cast<uint8_t>((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4)),
          static_cast<uint8_t>((s[j + 4] >> 4) | ((s[j] >> 6) << 4))};
}

// Scale i (0..15) of Q3_K in -32..31: four low bits in nibble order over s[0..7] (all low nibbles
// first), two high bits in s[8 + i % 4] at bit 2 * (i / 4).
constexpr int q3_k_scale(const uint8_t* s, int i) {
  const int low = (i < 8 ? s[i] : s[i - 8] >> 4) & 15;
  const int high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// 2^(e - 128): half of the E8M0 scale, for the doubled E2M1 table. e = 0 and 1 are subnormal.
constexpr float e8m0_halved(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Half of an E4M3 scale (four exponent bits with bias 7, three mantissa bits), the sign bit
// ignored. The bytes 0 and 0x7F are 0.
constexpr float ue4m3_halved(uint8_t b) {
  if (b == 0 || b == 0x7F) return 0.0f;
  const uint32_t exponent = (b >> 3) & 15u;
  const uint32_t mantissa = b & 7u;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>(((exponent + 127 - 8) << 23) | (mantissa << 20));
}

// ---- Reference decoder ---------------------------------------------------------------------

// True for f32, f16, bf16, f64 and every block type of GGUF.
bool can_dequantise(DType dtype);

// Decodes whole blocks. blocks.size() must be dtype_bytes(dtype, out.size()). `unsupported`, naming
// the type, when can_dequantise() is false. blocks need no alignment.
Status dequantise(DType dtype, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace kapitsa::weights
