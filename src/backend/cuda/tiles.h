// The layout of weights for tensor cores: an exact re-encoding into tiles of 16 rows. A tile is a
// run of units along k; a unit is one group of 64 elements of each row (256 for K types, whose
// scales have a second level), self-contained and a multiple of 16 bytes.
//
// In a group, lane l = 4 g + t of a warp owns the elements of rows g and g + 8 at k = 16 j + 4 t +
// {0, 1, 2, 3} for the four steps j of mma.m16n8k16: register 0 of a step is row g, k + {0, 1};
// register 1 row g + 8; registers 2 and 3 the same rows at k + {2, 3}. All a lane needs of a step
// lies together, and a group's steps two by two, so that loads are 16 bytes wide:
//
//   4 bits    word j of the lane's 16 bytes: register i in nibbles i (low half) and i + 4
//   8 bits    two planes of 512 bytes, steps 0, 1 and 2, 3; a register is two bytes, code + 128
//   16 bits   four planes of 512 bytes, one for each step
//
// then the scales, `half` s being k / 32 of the group and each line repeated for g = 0..7:
//   q4_0, q8_0  f16 d of (g, half 0), (g, 1), (g + 8, 0), (g + 8, 1)
//   q4_1        the same four d, then four m
//   q4_k        u8 scale of those four, then u8 minimum; after four groups f16 d and dmin of row g,
//               then of g + 8
//   q6_k        codes have a second plane of 256 bytes with bits 4 and 5; i8 scales of row g for
//               the four steps, then of g + 8; after four groups f16 d of rows g and g + 8
//   wide        8-bit codes of any other type, signed ones + 128; for each step f32 scale and
//   offset
//               of g, then of g + 8: value = scale * code + offset
#pragma once

#include "plan/types.h"

#include <cstdint>

namespace kapitsa::backend::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kGroup = 64;  // elements of k

enum class TileFormat : uint8_t { none, q4_0, q4_1, q4_k, q6_k, q8_0, f16, bf16, wide };

constexpr int unit_groups(TileFormat format) {
  return format == TileFormat::q4_k || format == TileFormat::q6_k ? 4 : 1;
}

constexpr int unit_bytes(TileFormat format) {
  switch (format) {
  case TileFormat::q4_0: return 512 + 64;
  case TileFormat::q4_1: return 512 + 128;
  case TileFormat::q4_k: return 4 * (512 + 64) + 64;
  case TileFormat::q6_k: return 4 * (512 + 256 + 64) + 32;
  case TileFormat::q8_0: return 1024 + 64;
  case TileFormat::f16:
  case TileFormat::bf16: return 2048;
  case TileFormat::wide: return 1024 + 512;
  case TileFormat::none: break;
  }
  return 0;
}

// Bytes of one group in a unit, and where the unit's tail is.
constexpr int record_bytes(TileFormat format) {
  return format == TileFormat::q4_k   ? 512 + 64
         : format == TileFormat::q6_k ? 512 + 256 + 64
                                      : unit_bytes(format);
}
constexpr int tail_bytes(TileFormat format) {
  return unit_bytes(format) - unit_groups(format) * record_bytes(format);
}

// Groups that are fetched together: enough bytes for one request to be worth it. A chunk is the
// records of its groups and then the tail of their unit.
constexpr int chunk_groups(TileFormat format) {
  switch (format) {
  case TileFormat::q4_0:
  case TileFormat::q4_1:
  case TileFormat::q4_k:
  case TileFormat::q6_k:
  case TileFormat::q8_0: return 2;
  default: return 1;
  }
}
constexpr int chunk_bytes(TileFormat format) {
  return chunk_groups(format) * record_bytes(format) + tail_bytes(format);
}

// The layout of a matrix for tensor cores; none where its rows do not divide into units.
constexpr TileFormat tile_format(DType dtype, GroupMode mode, int64_t in) {
  TileFormat format = TileFormat::wide;
  if (dtype == DType::grouped && mode == GroupMode::mxfp8) return TileFormat::none;
  switch (dtype) {
  case DType::q4_0: format = TileFormat::q4_0; break;
  case DType::q4_1: format = TileFormat::q4_1; break;
  case DType::q4_k: format = TileFormat::q4_k; break;
  case DType::q6_k: format = TileFormat::q6_k; break;
  case DType::q8_0: format = TileFormat::q8_0; break;
  case DType::f16: format = TileFormat::f16; break;
  case DType::bf16: format = TileFormat::bf16; break;
  case DType::f32:
  case DType::f64:
  case DType::iq1_s:
  case DType::iq1_m:
  case DType::iq2_xxs:
  case DType::iq2_xs:
  case DType::iq2_s:
  case DType::iq3_xxs:
  case DType::iq3_s: return TileFormat::none;
  default: break;
  }
  return in % (kGroup * unit_groups(format)) == 0 ? format : TileFormat::none;
}

// Tiles of one expert's matrix.
constexpr int64_t tiles_of(int64_t out) {
  return (out + kTileRows - 1) / kTileRows;
}
constexpr int64_t tile_bytes(TileFormat format, int64_t in) {
  return in / (kGroup * unit_groups(format)) * unit_bytes(format);
}

// A weight in this layout; format none: as in WeightView.
struct TileView {
  const uint8_t* data;
  const float* factor;  // as in WeightView
  int64_t tile_bytes, matrix_bytes;
  int64_t experts, out, in;
  TileFormat format;
  int32_t n_factors;
};

}  // namespace kapitsa::backend::cuda
