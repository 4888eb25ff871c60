// Draws the next token of one row from its logits. A pure function: it keeps no state between
// calls, so the token depends only on the parameters, the tokens before it, the position and the
// logits, never on other rows, the order of calls or rejected guesses.
//
// The chain: grammar mask, logit bias, penalties, temperature, top-k, top-p, min-p, and then the
// token with the highest logit / temperature + Gumbel noise (base/noise.h), the lowest id among
// equals. That is a draw from the softmax of what is left. Temperature 0 takes the highest logit
// after the penalties. Top-p counts probabilities among what top-k left.
#pragma once

#include "base/noise.h"
#include "base/result.h"
#include "sample/params.h"
#include "sample/select.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kapitsa::sample {

struct SampleInput {
  std::span<const float> logits = {};     // (n_vocab), as the model gave them
  std::span<const int32_t> history = {};  // the tokens before this one, prompt first
  // How many of `history` are prompt. Frequency and presence penalties count only what follows (as
  // OpenAI's do); the repetition penalty counts all.
  size_t n_prompt = 0;
  uint32_t position = 0;                   // index in the sequence of the token to draw
  uint32_t stream = kStreamDraw;           // of the noise
  std::span<const uint32_t> allowed = {};  // grammar: bit t % 32 of word t / 32; empty allows all
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// Log-probabilities are those of the softmax at temperature 1 over all logits after mask, bias and
// penalties, before truncation: they tell what the model thinks, whatever the temperature.
struct Sampled {
  int32_t token = 0;
  std::optional<float> logprob;                // set when n_logprobs >= 0
  std::span<const TokenLogprob> top_logprobs;  // (n_logprobs), in the scratch, until its next use
};

// Memory that calls reuse, so that a warm one allocates nothing. Holds no state.
struct SamplerScratch {
  struct Count {
    uint32_t in_window = 0;
    uint32_t generated = 0;
  };
  std::vector<float> logits;  // (n_vocab), adjusted
  std::vector<Candidate> candidates;
  std::vector<Count> counts;     // (n_vocab), zero between calls
  std::vector<int32_t> counted;  // the tokens whose count is not zero
  std::vector<TokenLogprob> top_logprobs;
};

// Precondition: validate(params, n_vocab). Fails when no token can be drawn: a logit is NaN or
// +infinity, all are -infinity, or the mask is shorter than the vocabulary.
Result<Sampled> sample_token(const SamplerParams& params, const SampleInput& input,
                             SamplerScratch& scratch);

}  // namespace kapitsa::sample
