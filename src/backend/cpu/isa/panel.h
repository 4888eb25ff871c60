// Panels: the layout of block-quantised weights that the integer kernels read, and of the
// activations that they multiply with. A panel is 16 output rows over all of k, one linear run of
// memory that is read from its start to its end. For each chunk of 256 k (the last may be shorter):
//
//   supers  16 f16 factors of the scales, then 16 of the mins (K formats)
//   scales  for each group of 16 or 32 k: 16 scales, then 16 mins where the format has them
//   codes   for each 32 k: 64 * bits bytes. A vector of 64 bytes holds 4 consecutive k of 16 rows:
//           byte 4 * row + k % 4. Vector v (0..7) has k 4v..4v+3. Nibbles: load i (0..3) has vector
//           2i in its low and 2i + 1 in its high nibbles. Then, 5 bits: 64 bytes, bit v of which is
//           the fifth bit of vector v. 6 bits: two runs of 64 bytes, bits 2j and 2j + 1 of run h
//           are the upper bits of vector 4h + j. 8 bits: the eight vectors, signed.
//
// value = scale * (code - offset) + min, where code may go through a table of 16 signed values.
// Plain constants only: included by the units that are compiled per instruction set.
#pragma once

#include <cstdint>

namespace kapitsa::backend::cpu {

enum class Format : uint8_t {
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  nvfp4,
  q2_k,
  q3_k,
  affine4,
  affine8,
  affine8_f16,
  iq1,
  iq2,
  iq3_xxs,
  iq3_s,
  affine4_f32,
  affine8_f32,
};
inline constexpr int kFormats = 23;

enum class Scales : uint8_t {
  f16,       // f16
  f16_min,   // f16, f16
  bf16_min,  // bf16, bf16
  f32_min,   // f32, f32
  k_min,     // u8 and u8; supers f16 (d, dmin): scale d * s, min -(dmin * m)
  k_signed,  // i8; super f16 d, times the format's factor
  e8m0,      // u8 exponent, halved: 2^(e - 128)
};

enum class Table : uint8_t { none, iq4, e2m1, iq1, iq2, iq3_xxs, iq3_s };

struct PanelTraits {
  int bits;   // of a stored code
  int group;  // k that share a scale
  Scales scales;
  int offset;
  Table table = Table::none;
  float factor = 1.0F;  // of the supers
};

inline constexpr PanelTraits kPanelTraits[kFormats] = {
    {4, 32, Scales::f16, 8},                   // q4_0
    {4, 32, Scales::f16_min, 0},               // q4_1
    {5, 32, Scales::f16, 16},                  // q5_0
    {5, 32, Scales::f16_min, 0},               // q5_1
    {8, 32, Scales::f16, 0},                   // q8_0
    {4, 32, Scales::k_min, 0},                 // q4_k
    {5, 32, Scales::k_min, 0},                 // q5_k
    {6, 16, Scales::k_signed, 32},             // q6_k
    {4, 32, Scales::f16, 0, Table::iq4},       // iq4_nl
    {4, 32, Scales::k_signed, 0, Table::iq4},  // iq4_xs
    {4, 32, Scales::e8m0, 0, Table::e2m1},     // mxfp4
    {4, 16, Scales::f16, 0, Table::e2m1},      // nvfp4: its E4M3 scales are exact in f16
    {4, 16, Scales::k_min, 0},                 // q2_k, widened
    {4, 16, Scales::k_signed, 4},              // q3_k, widened
    {4, 32, Scales::bf16_min, 0},              // MLX affine of 2 to 4 bits
    {8, 32, Scales::bf16_min, -128},           // MLX affine of 5 to 8 bits: code - 128 is stored
    {8, 32, Scales::f16_min, -128},            // the same with f16 numbers
    {4, 16, Scales::k_signed, 0, Table::iq1, 0.125F},     // iq1_s, iq1_m
    {4, 16, Scales::k_signed, 0, Table::iq2, 0.125F},     // iq2_xxs, iq2_xs, iq2_s
    {4, 32, Scales::k_signed, 0, Table::iq3_xxs, 0.25F},  // iq3_xxs
    {4, 32, Scales::k_signed, 0, Table::iq3_s},           // iq3_s
    {4, 32, Scales::f32_min, 0},     // MLX affine of 2 to 4 bits with f32 numbers
    {8, 32, Scales::f32_min, -128},  // of 5 to 8 bits
};
constexpr const PanelTraits& traits(Format format) {
  return kPanelTraits[static_cast<int>(format)];
}

constexpr bool has_min(Scales scales) {
  return scales == Scales::f16_min || scales == Scales::bf16_min || scales == Scales::f32_min ||
         scales == Scales::k_min;
}
constexpr bool has_supers(Scales scales) {
  return scales == Scales::k_min || scales == Scales::k_signed;
}

// Bytes of 16 scales with their mins, and of the supers of 256 k.
constexpr int64_t scale_bytes(Scales scales) {
  switch (scales) {
  case Scales::f16: return 32;
  case Scales::f16_min:
  case Scales::bf16_min: return 64;
  case Scales::f32_min: return 128;
  case Scales::k_min: return 32;
  case Scales::k_signed:
  case Scales::e8m0: return 16;
  }
  return 0;
}
constexpr int64_t super_bytes(Scales scales) {
  return scales == Scales::k_min ? 64 : scales == Scales::k_signed ? 32 : 0;
}

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kChunkColumns = 256;  // k

// Byte offsets inside a chunk of n k, and its size. n is a multiple of 32. Parts are rounded up to
// cache lines, so that no vector of codes crosses one.
struct ChunkLayout {
  int64_t scales, codes, bytes;
};
constexpr ChunkLayout chunk_layout(Format format, int64_t n) {
  const PanelTraits& t = traits(format);
  ChunkLayout layout = {};
  layout.scales = (super_bytes(t.scales) + 63) / 64 * 64;
  layout.codes = layout.scales + (n / t.group * scale_bytes(t.scales) + 63) / 64 * 64;
  layout.bytes = layout.codes + n / 32 * 64 * t.bits;
  return layout;
}

// The size of a panel of k columns (a multiple of 32, of 256 with supers).
constexpr int64_t panel_bytes(Format format, int64_t k) {
  const int64_t rest = k % kChunkColumns == 0 ? 0 : chunk_layout(format, k % kChunkColumns).bytes;
  return k / kChunkColumns * chunk_layout(format, kChunkColumns).bytes + rest;
}

// A row of activations in whole numbers: x = scale * v for each 32 k, v = 128 * high + low with two
// planes of bytes, v = high with one. Sums over v are kept for groups of 32 and of 16, as they are
// and times the scale. Byte offsets inside the record.
struct ActivationLayout {
  int64_t low, scale, sum32, scaled32, sum16, scaled16, bytes;
};
constexpr ActivationLayout activation_layout(int64_t k) {
  const int64_t plane = (k + 63) / 64 * 64;
  const int64_t by_32 = (k / 32 * 4 + 63) / 64 * 64;
  const int64_t by_16 = (k / 16 * 4 + 63) / 64 * 64;
  ActivationLayout layout = {};
  layout.low = plane;
  layout.scale = 2 * plane;
  layout.sum32 = layout.scale + by_32;
  layout.scaled32 = layout.sum32 + by_32;
  layout.sum16 = layout.scaled32 + by_32;
  layout.scaled16 = layout.sum16 + by_16;
  layout.bytes = layout.scaled16 + by_16;
  return layout;
}

}  // namespace kapitsa::backend::cpu
