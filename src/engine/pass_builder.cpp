#include "engine/pass_builder.h"

namespace kapitsa::engine {

void PassBuilder::begin(plan::Phase phase, int32_t routine) {
  phase_ = phase;
  routine_ = routine;
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  slots_.clear();
  history_.clear();
  outputs_.clear();
  views_.clear();
}

void PassBuilder::add_view(const Sequence& sequence, int32_t committed) {
  views_.push_back({.pages = sequence.pages.pages(),
                    .committed = committed,
                    .state_slot = sequence.state_slot,
                    .chain = true,
                    .replay = std::span(&sequence.tape_row, sequence.tape_row < 0 ? 0 : 1)});
}

template <typename TokenAt>
void PassBuilder::add_row(const Sequence& sequence, int32_t position, const TokenAt& token_at) {
  tokens_.push_back(token_at(position));
  positions_.push_back(position);
  sequences_.push_back(static_cast<int32_t>(views_.size()) - 1);
  slots_.push_back(static_cast<int32_t>(sequence.pages.slot(position)));
  for (int32_t back = 1; back <= n_history_; ++back)
    history_.push_back(position >= back ? token_at(position - back) : -1);
}

int32_t PassBuilder::add_chain(const Sequence& sequence, int32_t n, bool output) {
  const auto token_at = [&](int32_t position) {
    return sequence.tokens[static_cast<size_t>(position)];
  };
  add_view(sequence, sequence.committed);
  for (int32_t i = 0; i < n; ++i)
    add_row(sequence, sequence.committed + i, token_at);
  if (!output) return -1;
  outputs_.push_back(n_rows() - 1);
  return n_outputs() - 1;
}

void PassBuilder::add_block(const Sequence& sequence, int32_t from,
                            std::span<const int32_t> places) {
  const Block& block = sequence.block;
  const auto token_at = [&](int32_t position) {
    return position < block.first ? sequence.tokens[static_cast<size_t>(position)]
                                  : block.tokens[static_cast<size_t>(position - block.first)];
  };
  const int32_t first_row = n_rows() + block.first - from;
  add_view(sequence, from);
  for (int32_t position = from; position < block.first + block.size(); ++position)
    add_row(sequence, position, token_at);
  for (const int32_t place : places)
    outputs_.push_back(first_row + place);
}

plan::Pass PassBuilder::pass() const {
  plan::Pass pass;
  pass.phase = phase_;
  pass.routine = routine_;
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
