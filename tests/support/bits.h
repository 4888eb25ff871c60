// Floating-point numbers as their bits, for tests that want the same ones and not close ones: NaN
// equals itself, and 0 is not -0.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace kapitsa::test {

using Bits = std::vector<uint32_t>;

inline Bits bits(std::span<const float> values) {
  Bits result;
  result.reserve(values.size());
  for (const float value : values)
    result.push_back(std::bit_cast<uint32_t>(value));
  return result;
}

}  // namespace kapitsa::test
