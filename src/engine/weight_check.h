// Reads every weight of a checkpoint and looks for what no model has: values that are infinite, NaN
// or absurdly large, and block scales that are no numbers though their codes may hide it. Knows
// nothing about architectures.
#pragma once

#include "weights/checkpoint.h"

#include <cstdint>
#include <string>

namespace kapitsa::engine {

struct WeightCheck {
  std::string problem;  // empty: none
  int64_t n_tensors = 0;
  int64_t n_values = 0;
  int64_t n_skipped = 0;  // tensors of types that hold no values
};

// Stops at the first problem.
WeightCheck check_weights(const weights::Checkpoint& file, int threads);

}  // namespace kapitsa::engine
