// Decodes one row of a Plan's weight, whatever its encoding: the exact values that every backend's
// own layouts must reproduce.
#pragma once

#include "plan/types.h"

namespace kapitsa::backend {

bool can_decode(const plan::Weight& weight);

// out (in) = row `row` of expert `expert`. Precondition: can_decode(weight).
void decode_row(const plan::Weight& weight, int64_t expert, int64_t row, std::span<float> out);

}  // namespace kapitsa::backend
