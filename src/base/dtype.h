// Element types of tensors and buffers: plain numbers, and the block-quantised types of GGUF and
// MLX files. A quantised type stores `block_elements` consecutive values of one row in
// `block_bytes` bytes; the layouts are in weights/codec.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kapitsa {

enum class DType : uint8_t {
  // Plain numbers.
  f32,
  f16,
  bf16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u32,
  // GGUF blocks.
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  mxfp4,
  nvfp4,
  // Codes, scales and biases in separate arrays (base/group_quant.h); has no block size.
  grouped,
};

struct DTypeInfo {
  std::string_view name;   // as GGUF tools print it, lower case
  int block_elements = 1;  // values in one block
  int block_bytes = 0;     // bytes of one block
};

const DTypeInfo& dtype_info(DType dtype);
inline bool is_quantised(DType dtype) {
  return dtype >= DType::q4_0;
}

// Bytes of `n` values; n must be a multiple of the block size. nullopt when the product overflows,
// n does not fit, or the type has no blocks (grouped).
std::optional<int64_t> dtype_bytes(DType dtype, int64_t n);

}  // namespace kapitsa
