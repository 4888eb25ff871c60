// The weights of a Plan where they lie: decodes one row, whatever its encoding, into the exact
// values that every backend's own layouts must reproduce, and counts the bytes that are read there.
#pragma once

#include "plan/plan.h"

#include <vector>

namespace kapitsa::backend {

bool can_decode(const plan::Weight& weight);

// out (in) = row `row` of expert `expert`. Precondition: can_decode(weight).
void decode_row(const plan::Weight& weight, int64_t expert, int64_t row, std::span<float> out);

// Codes, scales and biases of all experts.
int64_t stored_bytes(const plan::Weight& weight);

// MemoryNeed::weights_mapped of a lowered plan: what is not `copied` (by weight), and embedding
// tables in any case, since their rows are looked up where they lie.
int64_t mapped_bytes(const plan::Plan& plan, const std::vector<bool>& copied);

}  // namespace kapitsa::backend
