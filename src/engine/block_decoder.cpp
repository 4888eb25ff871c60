#include "engine/block_decoder.h"

#include "engine/outcome.h"

#include <algorithm>

namespace kapitsa::engine {
namespace {

DenoiseParams params_of(const Sequence& sequence) {
  return {.sampling = sequence.sampling, .threshold = sequence.confidence};
}

}  // namespace

BlockDecoder::BlockDecoder(Loaded& loaded)
    : loaded_(loaded), diffusion_(*loaded.model->diffusion),
      denoiser_(diffusion_, loaded.model->plan.n_vocab), builder_(loaded.model->plan.n_history) {
  if (const auto* rule = std::get_if<model::MaskedDiffusion>(&diffusion_.rule))
    shift_logits_ = rule->shift_logits;
}

int32_t BlockDecoder::max_sequences() const {
  const int32_t most_rows = 2 * diffusion_.block + 1;
  return std::max(1, std::min(loaded_.limits.max_rows / most_rows,
                              loaded_.limits.max_outputs / diffusion_.block));
}

int64_t BlockDecoder::cache_tokens(int32_t n_prompt, int32_t max_tokens) const {
  const int64_t first = denoiser_.first_of_block(n_prompt);
  const int64_t n_rest = int64_t{n_prompt} + max_tokens - first;
  return first + (n_rest + diffusion_.block - 1) / diffusion_.block * diffusion_.block;
}

int32_t BlockDecoder::prompt_left(const Sequence& sequence) const {
  return std::max(denoiser_.first_of_block(sequence.n_prompt) - sequence.committed, 0);
}

void BlockDecoder::prefill(Sequence& sequence, int32_t n) {
  if (sequence.ended) return;
  builder_.begin(plan::Phase::prefill, diffusion_.store_routine);
  builder_.add_chain(sequence, n, false);
  Status done = loaded_.program->run(builder_.pass());
  if (done) done = loaded_.program->synchronise();
  if (!done) return fail(sequence, done.error());
  sequence.committed += n;
  const int32_t n_done = prompt_left(sequence) > 0 ? sequence.committed : sequence.n_prompt;
  sequence.sink(Prefilling{.done = n_done, .total = sequence.n_prompt, .cached = 0});
}

void BlockDecoder::open_block(Sequence& sequence) {
  if (!sequence.block.is_open()) {
    sequence.decode_start = Clock::now();
    if (sequence.committed == 0)  // the whole prompt is in the first block
      sequence.sink(Prefilling{.done = sequence.n_prompt, .total = sequence.n_prompt, .cached = 0});
  }
  denoiser_.open(params_of(sequence), sequence.tokens, sequence.block);
}

// With shifted logits the first ones come from the token before the block.
int32_t BlockDecoder::first_row_position(const Sequence& sequence) const {
  const int32_t first = sequence.block.first;
  return std::min(sequence.committed, shift_logits_ ? std::max(first - 1, 0) : first);
}

void BlockDecoder::decode(std::span<Sequence* const> sequences) {
  for (Sequence* sequence : sequences) {
    if (!sequence->block.is_open() || sequence->block.is_done()) open_block(*sequence);
  }
  Status done;
  if (diffusion_.store_routine != diffusion_.denoise_routine) done = store(sequences);
  if (done) done = run_pass(sequences);
  const int32_t n_outputs = builder_.n_outputs();
  auto logits = done ? loaded_.program->read(loaded_.model->plan.logits, 0, n_outputs)
                     : Result<std::span<const float>>(done.error());
  const auto n_vocab = static_cast<size_t>(loaded_.model->plan.n_vocab);
  size_t first = 0;
  for (Sequence* sequence : sequences) {
    if (!logits) {
      fail(*sequence, logits.error());
      continue;
    }
    sequence->committed = std::max(sequence->committed, sequence->block.first);
    denoiser_.wanted(sequence->block, places_);
    const size_t n = places_.size() * n_vocab;
    step(*sequence, logits->subspan(first, n));
    first += n;
  }
}

// Commits the blocks that were settled, by the routine that does so.
Status BlockDecoder::store(std::span<Sequence* const> sequences) {
  builder_.begin(plan::Phase::decode, diffusion_.store_routine);
  for (const Sequence* sequence : sequences) {
    const int32_t n = sequence->block.first - sequence->committed;
    if (n > 0) builder_.add_chain(*sequence, n, false);
  }
  if (builder_.n_rows() == 0) return {};
  KAPITSA_TRY(loaded_.program->run(builder_.pass()));
  for (Sequence* sequence : sequences)
    sequence->committed = std::max(sequence->committed, sequence->block.first);
  return {};
}

Status BlockDecoder::run_pass(std::span<Sequence* const> sequences) {
  builder_.begin(plan::Phase::decode, diffusion_.denoise_routine);
  const auto* canvas = std::get_if<model::CanvasDiffusion>(&diffusion_.rule);
  for (const Sequence* sequence : sequences) {
    denoiser_.wanted(sequence->block, places_);
    if (shift_logits_) {
      for (int32_t& place : places_)
        --place;
    }
    const int32_t row = builder_.n_rows();
    builder_.add_block(*sequence, first_row_position(*sequence), places_);
    if (canvas != nullptr) {
      KAPITSA_TRY(loaded_.program->write(canvas->conditions, row, sequence->block.conditions));
    }
  }
  return loaded_.program->run(builder_.pass());
}

void BlockDecoder::step(Sequence& sequence, std::span<const float> logits) {
  Block& block = sequence.block;
  if (const Status stepped = denoiser_.step(params_of(sequence), logits, block); !stepped)
    return fail(sequence, stepped.error());
  const auto n_emitted = [&] { return static_cast<int32_t>(sequence.tokens.size()) - block.first; };
  while (!sequence.ended && n_emitted() < block.n_settled) {
    emit_token(sequence, loaded_, block.tokens[static_cast<size_t>(n_emitted())], {});
  }
}

}  // namespace kapitsa::engine
