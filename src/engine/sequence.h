// One request while it runs: its tokens, its place in the cache, its sampler's inputs, its answer.
// Owned by the device thread.
#pragma once

#include "engine/answer.h"
#include "engine/denoise.h"
#include "kapitsa/engine.h"
#include "kv/pages.h"
#include "sample/sampler.h"

#include <chrono>
#include <vector>

namespace kapitsa::engine {

using Clock = std::chrono::steady_clock;

struct Sequence {
  RequestId id = 0;
  EventSink sink;
  sample::SamplerParams sampling;
  std::optional<float> confidence;  // block diffusion: threshold in place of the model's
  int32_t max_tokens = 0;           // of the answer; at least 1
  bool ignore_eos = false;

  std::vector<int32_t> tokens;  // prompt, then answer
  int32_t n_prompt = 0;
  int32_t committed = 0;  // tokens whose keys and values are in the cache
  kv::PageTable pages;    // holds room for prompt + max_tokens from admission on
  int32_t state_slot = -1;
  int32_t tape_row = -1;    // of its last token, which its next pass commits to the state; -1: none
  int64_t last_served = 0;  // on the scheduler's clock
  bool ended = false;       // its last event was sent
  Answer answer;
  Block block;  // block diffusion: the one that is being written

  Clock::time_point submitted;
  Clock::time_point prefill_start;
  Clock::time_point decode_start;  // of the first token, or of the first block
  Clock::time_point last_token;

  int32_t n_generated() const { return static_cast<int32_t>(tokens.size()) - n_prompt; }
};

}  // namespace kapitsa::engine
