#include "engine/pass_builder.h"

namespace kapitsa::engine {

void PassBuilder::begin(plan::Phase phase) {
  phase_ = phase;
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  slots_.clear();
  history_.clear();
  outputs_.clear();
  views_.clear();
}

int32_t PassBuilder::add_chain(const Sequence& sequence, int32_t n, bool output) {
  const auto view = static_cast<int32_t>(views_.size());
  views_.push_back({.pages = sequence.pages.pages(),
                    .committed = sequence.committed,
                    .state_slot = sequence.state_slot,
                    .chain = true,
                    .replay = std::span(&sequence.tape_row, sequence.tape_row < 0 ? 0 : 1)});
  for (int32_t i = 0; i < n; ++i) {
    const int32_t position = sequence.committed + i;
    tokens_.push_back(sequence.tokens[static_cast<size_t>(position)]);
    positions_.push_back(position);
    sequences_.push_back(view);
    slots_.push_back(static_cast<int32_t>(sequence.pages.slot(position)));
    for (int32_t back = 1; back <= n_history_; ++back) {
      history_.push_back(position >= back ? sequence.tokens[static_cast<size_t>(position - back)]
                                          : -1);
    }
  }
  if (!output) return -1;
  outputs_.push_back(n_rows() - 1);
  return static_cast<int32_t>(outputs_.size()) - 1;
}

plan::Pass PassBuilder::pass() const {
  plan::Pass pass;
  pass.phase = phase_;
  pass.tokens = tokens_;
  pass.positions = positions_;
  pass.sequences = sequences_;
  pass.slots = slots_;
  pass.history = history_;
  pass.outputs = outputs_;
  pass.views = views_;
  return pass;
}

}  // namespace kapitsa::engine
