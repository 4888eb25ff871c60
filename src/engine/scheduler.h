// What runs next, as pure functions of the live sequences, so that fairness is tested without a
// model. Policy: every pass that decodes takes one row, or block, of each decoding sequence;
// between two decode passes at most one piece of one prompt is prefilled, and prompts take turns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kapitsa::engine {

// Rows of one prefill piece: alone, and while others are waiting for their next token. Multiples of
// the grid. The short one bounds the gap that a long prompt puts between two tokens of another
// stream.
inline constexpr int32_t kPrefillRows = 512;
inline constexpr int32_t kSharedPrefillRows = 128;

// The largest row bucket of a decode pass.
inline constexpr int32_t kMaxDecodeRows = 32;

// A live sequence as the scheduler sees it.
struct Candidate {
  int32_t index = 0;        // the caller's
  int32_t prompt_left = 0;  // tokens still to prefill; 0: decoding
  int64_t last_served = 0;  // when it last ran; no two alike, or ties starve
};

struct Turn {
  std::vector<int32_t> decode;  // sequences that decode a row, in the order given
  int32_t prefill = -1;         // sequence whose prompt goes on, -1: none
  int32_t prefill_rows = 0;
};

// `max_decode_rows` bounds the sequences that decode; the sequences served longest ago come first
// when there are more.
void plan_turn(std::span<const Candidate> live, int32_t max_decode_rows, Turn& turn);

}  // namespace kapitsa::engine
