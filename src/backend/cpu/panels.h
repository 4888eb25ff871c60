// Re-encodes block-quantised weights into the panels that the integer kernels read (isa/panel.h):
// the same codes and scales in another order, never requantised (invariant 5).
#pragma once

#include "backend/cpu/isa/panel.h"
#include "plan/types.h"

#include <cstdint>
#include <optional>

namespace kapitsa::backend::cpu {

// The panel format of a weight; nullopt for plain numbers and for types without one.
std::optional<Format> panel_format(const plan::Weight& weight);

// Panels of one expert's matrix, and the bytes of all experts.
int64_t n_panels(const plan::Weight& weight);
int64_t packed_bytes(const plan::Weight& weight, Format format);

// Writes panel `tile` of an expert: rows 16 * tile to 16 * tile + 15, zeros after the last row.
// False if a scale is infinite or NaN.
bool pack_panel(const plan::Weight& weight, Format format, int64_t expert, int64_t tile,
                uint8_t* panel);

}  // namespace kapitsa::backend::cpu
