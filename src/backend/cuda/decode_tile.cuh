// Reads one element of a weight that lies in tiles (tiles.h): for tables that are looked up as well
// as multiplied with. The same values as decode.cuh gives for the file's encoding.
#pragma once

#include "backend/cuda/tiles.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace kapitsa::backend::cuda {

namespace detail {
__device__ inline float tile_half(const uint8_t* p, int i) {
  return __half2float(reinterpret_cast<const __half*>(p)[i]);
}
}  // namespace detail

__device__ inline float tile_value(const TileView& w, int64_t row, int64_t k) {
  const int per_unit = unit_groups(w.format);
  const auto group = static_cast<int>(k / kGroup);
  const int in_unit = group % per_unit;
  const uint8_t* unit =
      w.data + row / kTileRows * w.tile_bytes + group / per_unit * int64_t{unit_bytes(w.format)};
  const int in_tile = static_cast<int>(row % kTileRows);
  const int e = static_cast<int>(k % kGroup);
  const int g = in_tile % 8;
  const int upper = in_tile / 8;
  const int lane = 4 * g + e % 16 / 4;
  const int step = e / 16;
  const int reg = upper + 2 * (e % 4 / 2);
  const int high = e % 2;
  const int half = step / 2;
  const auto nibble = [&](const uint8_t* codes) {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(codes + lane * 16 + step * 4);
    return static_cast<int>(word >> (4 * reg + 16 * high) & 15U);
  };
  const auto byte = [&] {
    return static_cast<int>(unit[half * 512 + lane * 16 + step % 2 * 8 + 2 * reg + high]);
  };
  const auto value = [](int code, float scale, float offset) {
    return __fadd_rn(__fmul_rn(static_cast<float>(code), scale), offset);
  };
  const int which = 2 * upper + half;
  float result = 0.0F;
  switch (w.format) {
  case TileFormat::q4_0:
    result = value(nibble(unit) - 8, detail::tile_half(unit + 512 + g * 8, which), 0.0F);
    break;
  case TileFormat::q4_1: {
    const uint8_t* scales = unit + 512 + g * 16;
    result =
        value(nibble(unit), detail::tile_half(scales, which), detail::tile_half(scales, 4 + which));
    break;
  }
  case TileFormat::q4_k: {
    const uint8_t* scales = unit + in_unit * 576 + 512 + g * 8;
    const uint8_t* d = unit + 4 * 576 + g * 8;
    result = value(nibble(unit + in_unit * 576),
                   detail::tile_half(d, 2 * upper) * static_cast<float>(scales[which]),
                   -(detail::tile_half(d, 2 * upper + 1) * static_cast<float>(scales[4 + which])));
    break;
  }
  case TileFormat::q6_k: {
    const uint8_t* record = unit + in_unit * 832;
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(record + 512 + lane * 8 + half * 4);
    const int two = static_cast<int>(bits >> (2 * (4 * (step % 2) + reg) + 16 * high) & 3U);
    const auto scale =
        static_cast<float>(static_cast<int8_t>(record[768 + g * 8 + 4 * upper + step]));
    result = value((nibble(record) | two << 4) - 32,
                   detail::tile_half(unit + 4 * 832 + g * 4, upper) * scale, 0.0F);
    break;
  }
  case TileFormat::q8_0:
    result = value(byte() - 128, detail::tile_half(unit + 1024 + g * 8, which), 0.0F);
    break;
  case TileFormat::wide: {
    const auto* scales = reinterpret_cast<const float*>(unit + 1024 + step * 128 + g * 16);
    // offset is -128 * scale for signed codes, so the sum is exact where the product is.
    result = fmaf(static_cast<float>(byte()), scales[2 * upper], scales[2 * upper + 1]);
    break;
  }
  case TileFormat::f16:
    result = detail::tile_half(unit + step * 512 + lane * 16, 2 * reg + high);
    break;
  case TileFormat::bf16:
    result = __uint_as_float(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(
                                 unit + step * 512 + lane * 16)[2 * reg + high])
                             << 16);
    break;
  case TileFormat::none: break;
  }
  return __fmul_rn(result, w.factor == nullptr ? 1.0F : w.factor[0]);
}

}  // namespace kapitsa::backend::cuda
