// Reference encoders for the common block types: each value is rounded to the nearest code of a
// scale that covers the block. For test data and synthetic models; the importance-weighted search
// of real quantisers is out of scope, so errors are a little larger than theirs.
#pragma once

#include "base/dtype.h"
#include "base/result.h"

#include <cstddef>
#include <span>
#include <vector>

namespace kapitsa::weights {

// f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k and q6_k; `unsupported`, naming the
// type, for any other. values.size() must be a whole number of blocks, all values finite.
Result<std::vector<std::byte>> quantise(DType dtype, std::span<const float> values);

}  // namespace kapitsa::weights
