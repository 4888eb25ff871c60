// What a request may ask of the sampler, with its defaults and limits. Plain data; the drawing is
// in sampler.h. Names are those of the OpenAI API where it has one.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <map>

namespace kapitsa::sample {

struct SamplerParams {
  // 0 takes the most likely token (lowest id among equals); otherwise kMinTemperature to 100.
  float temperature = 1.0f;
  int32_t top_k = 0;   // keep this many; 0 keeps all
  float top_p = 1.0f;  // keep the fewest that together have this probability, at least one
  float min_p = 0.0f;  // keep those with at least this share of the highest probability
  float repetition_penalty =
      1.0f;  // divides positive logits of tokens seen, multiplies negative ones
  float frequency_penalty = 0.0f;            // -2 to 2, times how often the token was generated
  float presence_penalty = 0.0f;             // -2 to 2, once if the token was generated
  int64_t penalty_window = -1;               // penalties look at the last n tokens; -1 at all
  std::map<int32_t, float> logit_bias = {};  // token to a number added to its logit, -100 to 100
  uint64_t seed = 0;
  uint32_t choice = 0;      // index among the answers to one request
  int32_t n_logprobs = -1;  // -1: none; 0: of the drawn token; n: and of the n most likely
};

// Below this the noise drowns in the rounding of logit / temperature; use 0.
inline constexpr float kMinTemperature = 1e-4f;
inline constexpr int32_t kMaxLogprobs = 128;

// Names the field, its range and what was found. Every call of sample_token() needs valid
// parameters.
Status validate(const SamplerParams& params, int64_t n_vocab);

}  // namespace kapitsa::sample
