#include "engine/scheduler.h"

#include "plan/pass.h"

#include <algorithm>

namespace kapitsa::engine {

static_assert(kPrefillRows % plan::kGrid == 0 && kSharedPrefillRows % plan::kGrid == 0,
              "prefill is cut on the grid (invariant 4)");

void plan_turn(std::span<const Candidate> live, int32_t max_decode_rows, Turn& turn) {
  turn.decode.clear();
  turn.prefill = -1;
  turn.prefill_rows = 0;
  const Candidate* oldest_prompt = nullptr;
  for (const Candidate& candidate : live) {
    if (candidate.prompt_left == 0) {
      turn.decode.push_back(candidate.index);
    } else if (oldest_prompt == nullptr || candidate.last_served < oldest_prompt->last_served) {
      oldest_prompt = &candidate;
    }
  }
  if (static_cast<int32_t>(turn.decode.size()) > max_decode_rows) {
    const auto served = [&](int32_t index) {
      return std::find_if(live.begin(), live.end(),
                          [&](const Candidate& c) { return c.index == index; })
          ->last_served;
    };
    std::stable_sort(turn.decode.begin(), turn.decode.end(),
                     [&](int32_t a, int32_t b) { return served(a) < served(b); });
    turn.decode.resize(static_cast<size_t>(max_decode_rows));
  }
  if (oldest_prompt != nullptr) {
    turn.prefill = oldest_prompt->index;
    turn.prefill_rows = std::min(oldest_prompt->prompt_left,
                                 turn.decode.empty() ? kPrefillRows : kSharedPrefillRows);
  }
}

}  // namespace kapitsa::engine
