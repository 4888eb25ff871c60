// The group formats of MLX weights: layouts and the reference decoder. A row of `in` values is
// in * bits / 32 little-endian u32 words of codes and in / group scales (and biases).
//
// Codes are one bit stream along the row, least significant bits first: value i has bits
// i * bits .. i * bits + bits - 1, counted from bit 0 of word 0. With 3, 5 and 6 bits a code may
// lie in two words. Four-bit codes are nibbles in order, the low one first; eight-bit codes bytes.
//
//   affine  w = scale * q + bias          q unsigned, 2, 3, 4, 5, 6 or 8 bits; group 32, 64 or 128
//   mxfp4   w = e2m1(q) * 2^(scale - 127)                 scale E8M0 bytes, group 32
//   mxfp8   w = e4m3(q) * 2^(scale - 127)                 scale E8M0 bytes, group 32
//   nvfp4   w = e2m1(q) * e4m3(scale)                     scale E4M3 bytes, group 16
//
// Hugging Face NVFP4 files (ModelOpt: weight, weight_scale) hold the same bytes as nvfp4; their
// tensor-wide scale is for the caller to apply.
#pragma once

#include "base/dtype.h"
#include "base/group_quant.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace kapitsa::weights {

using MlxMode = GroupMode;
using MlxQuant = GroupQuant;
const char* to_string(MlxMode mode);

// Whether the table above has this combination.
bool is_valid(const MlxQuant& quant);

// An E4M3 number with its sign; 0x7F and 0xFF are NaN.
float e4m3_to_f32(uint8_t byte);

// Decodes one row of out.size() values, a multiple of the group. `scale_dtype` is that of scales
// and biases for affine (f32, f16 or bf16) and ignored otherwise. The spans must have the sizes
// above and quant must be valid.
void dequantise_mlx(const MlxQuant& quant, std::span<const std::byte> weight,
                    std::span<const std::byte> scales, std::span<const std::byte> biases,
                    DType scale_dtype, std::span<float> out);

}  // namespace kapitsa::weights
