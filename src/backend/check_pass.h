// The checks of a Pass that every backend makes before it runs one: sizes, ranges, the shape of the
// rows. They read only what the Pass holds and never change anything.
#pragma once

#include "backend/backend.h"

namespace kapitsa::backend {

// invalid_argument with one line that names the row or the sequence. `plan` may be lowered or not.
Status check_pass(const plan::Plan& plan, const ProgramLimits& limits, const plan::Pass& pass);

// For Program::write: an f32 input buffer that has these rows.
Status check_write(const plan::Plan& plan, const ProgramLimits& limits, plan::BufferId buffer,
                   int32_t first_row, size_t n_values);

// For Program::commit and the state calls: the slot and tape rows exist.
Status check_state_slot(const ProgramLimits& limits, int32_t state_slot);
Status check_tape_rows(const ProgramLimits& limits, std::span<const int32_t> tape_rows);

}  // namespace kapitsa::backend
