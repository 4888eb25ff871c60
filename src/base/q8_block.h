// What a cache of DType::q8_0 stores for 32 values: signed codes and one f16 scale, value = scale *
// code. All backends store the same codes and scales for the same floats: divisions, comparisons
// and additions only, which are rounded alike everywhere.
#pragma once

#include "base/half.h"

#include <cmath>
#include <cstdint>

namespace kapitsa {

inline constexpr int64_t kQ8Values = 32;

struct Q8Block {
  uint16_t scale = 0;  // f16
  int8_t codes[kQ8Values] = {};
};

// The largest magnitude becomes code 127 or -127. A block with NaN or infinity is all NaN, and one
// below the range of the scale is all 0.
inline Q8Block q8_block(const float* x) {
  float largest = 0.0F, poison = 0.0F;
  for (int64_t i = 0; i < kQ8Values; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
    poison += x[i] - x[i];  // NaN for NaN and infinity
  }
  Q8Block block;
  block.scale = f32_to_f16(largest / 127.0F + poison);
  const float scale = f16_to_f32(block.scale);
  if (!(scale > 0.0F && scale <= 65504.0F)) return block;
  // Codes are rounded to nearest, ties to even, by the lowest bit of a number of this size.
  constexpr float kRound = 0x1.8p23F;
  for (int64_t i = 0; i < kQ8Values; ++i) {
    float code = (x[i] / scale + kRound) - kRound;
    code = code < 127.0F ? code : 127.0F;
    code = code > -127.0F ? code : -127.0F;
    block.codes[i] = static_cast<int8_t>(code);
  }
  return block;
}

}  // namespace kapitsa
