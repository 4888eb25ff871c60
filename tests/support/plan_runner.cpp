#include "support/plan_runner.h"

#include <algorithm>

namespace kapitsa::test {
namespace {

constexpr int32_t kPageTokens = plan::kGrid;

}  // namespace

struct PlanRunner::Draft {
  std::vector<int32_t> tokens, positions, sequences, slots, parents, history, outputs;
  std::vector<plan::SequenceView> views;
};

Result<PlanRunner> PlanRunner::open(backend::Device& device, const plan::Plan& plan,
                                    const RunnerOptions& options) {
  PlanRunner runner;
  runner.options_ = options;
  runner.logits_ = plan.logits;
  runner.n_history_ = plan.n_history;
  for (const plan::Buffer& buffer : plan.buffers())
    runner.widths_.push_back(buffer.width);
  const int32_t pages = (options.max_tokens + kPageTokens - 1) / kPageTokens;
  const int32_t n_pages = (pages + 1) * options.n_sequences;
  for (int32_t s = 0; s < options.n_sequences; ++s) {
    Sequence sequence;
    for (int32_t p = 0; p < pages; ++p)
      sequence.pages.push_back(n_pages - 1 - (p * options.n_sequences + s));
    sequence.spare_page = s;
    runner.sequences_.push_back(std::move(sequence));
  }
  backend::ProgramLimits limits;
  limits.max_rows = options.max_rows;
  limits.max_outputs = options.max_rows;
  limits.n_pages = n_pages;
  limits.page_tokens = kPageTokens;
  limits.n_state_slots = options.n_sequences;
  limits.compute = options.compute;
  limits.copied = options.copied;
  KAPITSA_ASSIGN(runner.program_, device.load(plan, limits));
  for (int32_t s = 0; s < options.n_sequences; ++s)
    KAPITSA_TRY(runner.program_->clear_state(s));
  if (options.graphs) {
    for (const int32_t bucket : device.info().row_buckets)
      KAPITSA_TRY(runner.program_->capture(bucket));
  }
  return runner;
}

int32_t PlanRunner::committed(int32_t sequence) const {
  return static_cast<int32_t>(sequences_[static_cast<size_t>(sequence)].tokens.size());
}

int32_t PlanRunner::slot(const Sequence& sequence, int32_t position) const {
  return sequence.pages.at(static_cast<size_t>(position / kPageTokens)) * kPageTokens +
         position % kPageTokens;
}

void PlanRunner::append_rows(Draft& draft, const Rows& rows) {
  Sequence& sequence = sequences_[static_cast<size_t>(rows.sequence)];
  const auto first = static_cast<int32_t>(draft.tokens.size());
  const auto end = static_cast<int32_t>(sequence.tokens.size());
  int32_t spare = sequence.spare_page * kPageTokens;
  sequence.rows.clear();
  sequence.row_slots.clear();
  sequence.row_tokens = rows.tokens;
  std::vector<int32_t> taken;  // positions whose own slot a row of the pass has
  for (size_t i = 0; i < rows.tokens.size(); ++i) {
    const int32_t parent = rows.parents.empty() ? static_cast<int32_t>(i) - 1 : rows.parents[i];
    const int32_t position =
        parent < 0 ? end : draft.positions[static_cast<size_t>(first + parent)] + 1;
    const bool own = std::ranges::find(taken, position) == taken.end();
    taken.push_back(position);
    sequence.rows.push_back(first + static_cast<int32_t>(i));
    sequence.row_slots.push_back(own ? slot(sequence, position) : spare++);
    draft.tokens.push_back(rows.tokens[i]);
    draft.positions.push_back(position);
    draft.sequences.push_back(static_cast<int32_t>(draft.views.size()));
    draft.slots.push_back(sequence.row_slots.back());
    draft.parents.push_back(parent < 0 ? -1 : first + parent);
    draft.outputs.push_back(first + static_cast<int32_t>(i));

    std::vector<int32_t> path = sequence.tokens;
    std::vector<int32_t> branch;
    for (int32_t a = parent; a >= 0;
         a = rows.parents.empty() ? a - 1 : rows.parents[static_cast<size_t>(a)])
      branch.push_back(rows.tokens[static_cast<size_t>(a)]);
    path.insert(path.end(), branch.rbegin(), branch.rend());
    for (int32_t k = 1; k <= n_history_; ++k)
      draft.history.push_back(k <= std::ssize(path) ? path[path.size() - static_cast<size_t>(k)]
                                                    : -1);
  }
  plan::SequenceView view;
  view.pages = sequence.pages;
  view.committed = end;
  view.state_slot = rows.sequence;
  view.chain = spare == sequence.spare_page * kPageTokens;
  view.replay = sequence.replay;
  draft.views.push_back(view);
}

Status PlanRunner::run(plan::Phase phase, std::span<const Rows> rows) {
  // The tape keeps only one decode pass, so sequences that sit this one out commit before it.
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const bool present = std::ranges::any_of(
        rows, [&](const Rows& part) { return part.sequence == static_cast<int32_t>(s); });
    if (present || sequences_[s].replay.empty()) continue;
    KAPITSA_TRY(program_->commit(static_cast<int32_t>(s), sequences_[s].replay));
    sequences_[s].replay.clear();
  }
  Draft draft;
  for (const Rows& part : rows)
    append_rows(draft, part);
  plan::Pass pass;
  pass.phase = phase;
  pass.routine = options_.routine;
  pass.tokens = draft.tokens;
  pass.positions = draft.positions;
  pass.sequences = draft.sequences;
  pass.slots = draft.slots;
  pass.parents = draft.parents;
  pass.history = draft.history;
  pass.outputs = draft.outputs;
  pass.views = draft.views;
  last_tokens_ = draft.tokens;
  KAPITSA_TRY(program_->run(pass));
  KAPITSA_TRY(program_->synchronise());
  for (const Rows& part : rows)
    sequences_[static_cast<size_t>(part.sequence)].replay.clear();
  return {};
}

Status PlanRunner::prefill(int32_t sequence, std::span<const int32_t> tokens) {
  const Rows rows = {sequence, {tokens.begin(), tokens.end()}, {}};
  KAPITSA_TRY(run(plan::Phase::prefill, std::span(&rows, 1)));
  std::vector<int32_t>& known = sequences_[static_cast<size_t>(sequence)].tokens;
  known.insert(known.end(), tokens.begin(), tokens.end());
  return {};
}

Status PlanRunner::decode(std::span<const Rows> rows) {
  return run(plan::Phase::decode, rows);
}

Status PlanRunner::accept(int32_t sequence_index, const std::vector<int32_t>& path, bool flush) {
  Sequence& sequence = sequences_[static_cast<size_t>(sequence_index)];
  std::vector<backend::Program::SlotCopy> copies;
  for (const int32_t row : path) {
    const auto r = static_cast<size_t>(row);
    const int32_t own = slot(sequence, static_cast<int32_t>(sequence.tokens.size()));
    if (sequence.row_slots[r] != own) copies.push_back({sequence.row_slots[r], own});
    sequence.tokens.push_back(sequence.row_tokens[r]);
    sequence.replay.push_back(sequence.rows[r]);
  }
  KAPITSA_TRY(program_->copy_slots(copies));
  if (!flush) return {};
  KAPITSA_TRY(program_->commit(sequence_index, sequence.replay));
  sequence.replay.clear();
  return {};
}

Result<std::vector<float>> PlanRunner::read(plan::BufferId buffer) {
  KAPITSA_ASSIGN(const std::span<const float> values, program_->read(buffer, 0, n_rows()));
  return std::vector<float>(values.begin(), values.end());
}

Result<std::vector<float>> PlanRunner::logits(int32_t row) {
  KAPITSA_ASSIGN(const std::span<const float> values, program_->read(logits_, row, 1));
  return std::vector<float>(values.begin(), values.end());
}

}  // namespace kapitsa::test
