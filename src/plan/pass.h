// A pass: one run of a Plan over some rows of some sequences. What the engine hands to a backend.
// Spans are borrowed for the call. A row is one token at one position of one sequence.
#pragma once

#include "plan/types.h"

#include <cstdint>
#include <span>

namespace kapitsa::plan {

inline constexpr int32_t kGrid =
    64;  // tokens: prefill is cut only at multiples of it (invariant 4)

enum class Phase : uint8_t {
  prefill,  // each sequence's rows are a chain from its committed end, which is on the grid;
            // recurrent states advance
  decode,   // 1..32 rows, chains or trees, or blocks of a diffusion model, from any position;
            // recurrent states stay, tape rows are written
};

// A sequence as a pass sees it.
struct SequenceView {
  std::span<const int32_t> pages;  // page table: position p is slot pages[p / page_tokens] *
                                   // page_tokens + p % page_tokens
  int32_t committed = 0;   // tokens already in the cache; rows of the pass sit at >= this position
  int32_t state_slot = 0;  // its entry of every recurrent state
  bool chain = true;       // every row's slot is the page table's slot of its position
  std::span<const int32_t>
      replay;  // tape rows of the routine's previous decode pass to commit first, in order; a tape
               // row has the index of the row that wrote it, and `committed` counts them already
};

// How to draw one output row on the device; used by Sample only.
struct SamplingRow {
  uint64_t seed = 0;
  uint32_t choice = 0;
  int32_t position = 0;  // index of the token being produced
  float temperature = 0.0F;
  int32_t top_k = 0;  // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
};

struct Pass {
  Phase phase = Phase::decode;
  int32_t routine = 0;                 // which step list of the Plan
  std::span<const int32_t> tokens;     // (rows)
  std::span<const int32_t> positions;  // (rows) index of the token in its sequence, from 0
  std::span<const int32_t>
      sequences;                     // (rows) index into `views`; rows of one sequence are adjacent
  std::span<const int32_t> slots;    // (rows) KV slot the row writes
  std::span<const int32_t> parents;  // (rows) row of its parent, -1: the committed state. Parents
                                     // come before children; empty: every sequence is a chain
  std::span<const int32_t>
      history;  // (rows, Plan::n_history) preceding tokens on the path, nearest
                // first, -1 before the start; empty where n_history is 0
  std::span<const int32_t> outputs;  // rows whose logits are wanted, rising
  std::span<const SequenceView> views;
  std::span<const SamplingRow> sampling;  // (outputs), or empty

  int32_t n_rows() const { return static_cast<int32_t>(tokens.size()); }
  // Row of the parent, -1 for the committed state.
  int32_t parent(int32_t row) const {
    if (!parents.empty()) return parents[static_cast<size_t>(row)];
    const auto r = static_cast<size_t>(row);
    return row > 0 && sequences[r - 1] == sequences[r] ? row - 1 : -1;
  }
};

}  // namespace kapitsa::plan
