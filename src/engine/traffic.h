// The bytes that decoding reads: the bound on its speed. Counted from the Plan, so that a benchmark
// states the same number for every backend.
#pragma once

#include "plan/plan.h"

#include <cstdint>

namespace kapitsa::engine {

// Of n-gram tables: a token reads a few rows of them, so that they may stay in the file.
int64_t row_table_bytes(const plan::Plan& plan);

// Bytes that routine 0 reads to decode one token at `position`: each weight once (of an embedding
// table one row, of experts the chosen ones), the cached keys and values that the token sees, and
// the recurrent states, which are also written.
int64_t decode_bytes(const plan::Plan& plan, int64_t position);

}  // namespace kapitsa::engine
