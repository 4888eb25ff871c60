// Sizes read from a checkpoint's metadata: a positive count that fits an int32_t. Larger values
// than `max` are refused with the key and the range, before anything is computed from them.
#pragma once

#include "base/result.h"
#include "weights/checkpoint.h"

#include <string_view>

namespace kapitsa::model {

inline Result<int32_t> read_count(const weights::Checkpoint& file, std::string_view key,
                                  int64_t max) {
  KAPITSA_ASSIGN(const int64_t value, file.integer(key, 1, max));
  return static_cast<int32_t>(value);
}

inline Result<int32_t> read_count_or(const weights::Checkpoint& file, std::string_view key,
                                     int64_t fallback, int64_t max) {
  KAPITSA_ASSIGN(const int64_t value, file.integer_or(key, fallback, 1, max));
  return static_cast<int32_t>(value);
}

}  // namespace kapitsa::model
