// How sequences of a block-diffusion model go on: their prompts' whole blocks are prefilled, then
// each pass denoises the open block of every sequence, whose keys and values are written to the
// cache's slots but not committed. The pass after a block is settled holds its tokens once more,
// before those of the next block, and so commits it; a model with a routine of its own for that
// runs that one first. Settled tokens go to the sequence's sink in order. Device thread only.
#pragma once

#include "engine/denoise.h"
#include "engine/loader.h"
#include "engine/pass_builder.h"
#include "engine/sequence.h"

#include <span>
#include <vector>

namespace kapitsa::engine {

class BlockDecoder {
public:
  // `loaded`, a block-diffusion model, must outlive this object.
  explicit BlockDecoder(Loaded& loaded);

  // Sequences that one pass may hold.
  int32_t max_sequences() const;
  // Slots for a prompt and an answer: blocks are whole, whatever max_tokens cuts off the text.
  int64_t cache_tokens(int32_t n_prompt, int32_t max_tokens) const;
  // Tokens of the prompt still to prefill.
  int32_t prompt_left(const Sequence& sequence) const;

  // The next n of them.
  void prefill(Sequence& sequence, int32_t n);
  // One step of each sequence's block. Ends those that fail.
  void decode(std::span<Sequence* const> sequences);

private:
  void open_block(Sequence& sequence);
  // Where the sequence's rows in the next pass begin.
  int32_t first_row_position(const Sequence& sequence) const;
  Status store(std::span<Sequence* const> sequences);
  Status run_pass(std::span<Sequence* const> sequences);
  void step(Sequence& sequence, std::span<const float> logits);

  Loaded& loaded_;
  const model::Diffusion& diffusion_;
  bool shift_logits_ = false;
  Denoiser denoiser_;
  PassBuilder builder_;
  std::vector<int32_t> places_;
};

}  // namespace kapitsa::engine
