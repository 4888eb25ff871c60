// Collects the rows of one pass. Reused between passes, so that it allocates only while it grows.
#pragma once

#include "engine/sequence.h"
#include "plan/pass.h"

#include <span>
#include <vector>

namespace kapitsa::engine {

class PassBuilder {
public:
  explicit PassBuilder(int32_t n_history) : n_history_(n_history) {}

  void begin(plan::Phase phase, int32_t routine = 0);

  // The next n tokens after the committed ones, as a chain. With output: logits of the last one are
  // wanted; returns its index among the outputs, else -1.
  int32_t add_chain(const Sequence& sequence, int32_t n, bool output);

  // The settled tokens from position `from` on, then those of the sequence's block, as a chain. The
  // logits wanted are those of `places`, counted from the block's first row.
  void add_block(const Sequence& sequence, int32_t from, std::span<const int32_t> places);

  int32_t n_outputs() const { return static_cast<int32_t>(outputs_.size()); }
  int32_t n_rows() const { return static_cast<int32_t>(tokens_.size()); }
  // Borrows the builder's memory until the next begin().
  plan::Pass pass() const;

private:
  void add_view(const Sequence& sequence, int32_t committed);
  // A row of the view added last. token_at(position) gives the tokens before it.
  template <typename TokenAt>
  void add_row(const Sequence& sequence, int32_t position, const TokenAt& token_at);

  plan::Phase phase_ = plan::Phase::decode;
  int32_t routine_ = 0;
  int32_t n_history_;
  std::vector<int32_t> tokens_, positions_, sequences_, slots_, history_, outputs_;
  std::vector<plan::SequenceView> views_;
};

}  // namespace kapitsa::engine
