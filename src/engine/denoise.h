// One block of a block-diffusion model, step by step: which tokens settle, given the logits of a
// pass. Pure functions of the request, the block and the logits, so that neighbours in a batch
// change nothing (invariant 2); noise is that of (seed, choice, position, token, step). Runs no
// passes and sends no events: block_decoder.h does.
//
// Masked (LLaDA2, SDAR): a token is drawn for every open position and settles where
// its probability is above the threshold, the likeliest one in any case, and more where otherwise
// the steps would not suffice. The mask token itself is never drawn. Probabilities are those before
// temperature and truncation.
// Canvas (DiffusionGemma; entropy bound: Ben-Hamu et al., arXiv 2505.24857): the request's
// temperature multiplies the model's schedule; 0 draws the likeliest token.
#pragma once

#include "model/diffusion.h"
#include "sample/sampler.h"

#include <optional>
#include <span>
#include <vector>

namespace kapitsa::engine {

// The block of a sequence that is being written.
struct Block {
  int32_t first = 0;            // position of its first token
  int32_t n_given = 0;          // tokens of the prompt at its beginning
  std::vector<int32_t> tokens;  // (block), as the next pass takes them
  int32_t n_settled = 0;        // tokens at its beginning that will not change any more
  int32_t step = 0;             // steps done
  int32_t n_edits = 0;          // masked: of them, with no position open

  // Canvas only.
  std::vector<int32_t> likeliest;  // (block), after the last step
  int32_t n_unchanged = 0;         // last steps that gave the same
  std::vector<float> conditions;   // (block, vocab), for the next pass

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  bool is_open() const { return !tokens.empty(); }
  bool is_done() const { return is_open() && n_settled == size(); }
};

struct DenoiseParams {
  sample::SamplerParams sampling;
  std::optional<float> threshold;  // in place of the model's; masked models only
};

class Denoiser {
public:
  Denoiser(const model::Diffusion& diffusion, int32_t n_vocab);

  int32_t block_length() const { return diffusion_.block; }

  // Where the block begins that comes after n_tokens, of which all are settled.
  int32_t first_of_block(int32_t n_tokens) const;
  // Opens the block that holds the token after `tokens`.
  void open(const DenoiseParams& params, std::span<const int32_t> tokens, Block& block) const;

  // The places in the block whose logits the next step needs, rising.
  void wanted(const Block& block, std::vector<int32_t>& places) const;
  // One step. logits (wanted, vocab) are those for the tokens of the wanted places.
  Status step(const DenoiseParams& params, std::span<const float> logits, Block& block);

private:
  // What a pass says of one place.
  struct Guess {
    int32_t place = 0;
    int32_t token = 0;
    double probability = 0.0;
  };

  Status step_masked(const model::MaskedDiffusion& rule, const DenoiseParams& params,
                     std::span<const float> logits, Block& block);
  Status step_canvas(const model::CanvasDiffusion& rule, const DenoiseParams& params,
                     std::span<const float> logits, Block& block);
  Result<Guess> guess(const sample::SamplerParams& params, const Block& block, int32_t place,
                      std::span<const float> logits);
  // Entropy in nats of softmax(logits / temperature), which becomes the place's condition.
  double condition(const sample::SamplerParams& params, float temperature,
                   std::span<const float> logits, std::span<float> probabilities);
  int32_t random_token(const sample::SamplerParams& params, int32_t position, int32_t step) const;
  bool is_masked(const Block& block, int32_t place) const;

  model::Diffusion diffusion_;
  int32_t n_vocab_;
  std::vector<uint32_t> allowed_;  // all but the mask token; empty: all
  // Reused between steps.
  std::vector<int32_t> places_;
  std::vector<Guess> open_guesses_;
  std::vector<float> biased_;
  std::vector<double> entropies_;
  sample::SamplerScratch scratch_;
};

}  // namespace kapitsa::engine
