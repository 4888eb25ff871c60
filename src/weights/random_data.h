// Random tensor data for models without a file: blocks of quantised types with random codes and
// fixed scales, chosen so that values have a deviation of about 0.02, like trained weights. The
// same name gives the same bytes on every machine. Speed does not depend on the values.
#pragma once

#include "base/dtype.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace kapitsa::weights {

enum class RandomKind : uint8_t {
  weight,  // around 0
  norm,    // around 1
  decay,   // -4 to -0.5, like -exp(A_log)
};

class RandomData {
public:
  // Types: f32, q4_0, q8_0, q4_k, q6_k; `unsupported` for any other. out.size() is a whole number
  // of blocks. kind matters for f32 alone.
  Status fill(std::string_view name, DType dtype, RandomKind kind, std::span<std::byte> out);

private:
  const std::vector<std::byte>& pool(DType dtype);
  std::map<DType, std::vector<std::byte>> pools_;
};

}  // namespace kapitsa::weights
