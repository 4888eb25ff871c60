#include "backend/check_pass.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::backend {
namespace {

using plan::Pass;
using plan::Phase;
using plan::Plan;
using plan::SequenceView;

template <typename... Args>
Error bad(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::invalid_argument, "pass: " + fmt::format(format, std::forward<Args>(args)...)};
}

bool has_state(const Plan& plan, plan::StateKind kind) {
  return std::any_of(plan.states().begin(), plan.states().end(),
                     [&](const plan::State& state) { return state.kind == kind; });
}

// Smallest vocabulary of the routine's embedding tables; 0 when it embeds no tokens.
int64_t smallest_vocabulary(const Plan& plan, int32_t routine) {
  int64_t smallest = 0;
  const auto see = [&](plan::WeightId table) {
    const int64_t n = plan.weight(table).out;
    smallest = smallest == 0 ? n : std::min(smallest, n);
  };
  for (const plan::Step& step : plan.routines()[static_cast<size_t>(routine)].steps) {
    if (const auto* rows = std::get_if<plan::EmbedRows>(&step.op)) see(rows->table);
    if (const auto* embed = std::get_if<plan::Embed>(&step.op)) see(embed->table);
  }
  return smallest;
}

Status check_sizes(const Plan& plan, const ProgramLimits& limits, const Pass& pass) {
  const size_t n = pass.tokens.size();
  if (pass.routine < 0 || static_cast<size_t>(pass.routine) >= plan.routines().size())
    return bad("routine {} of a plan with {}", pass.routine, plan.routines().size());
  if (n == 0) return bad("it has no rows");
  if (n > static_cast<size_t>(limits.max_rows))
    return bad("{} rows, but the program was loaded for at most {}", n, limits.max_rows);
  if (pass.positions.size() != n || pass.sequences.size() != n || pass.slots.size() != n)
    return bad("{} tokens but {} positions, {} sequences and {} slots", n, pass.positions.size(),
               pass.sequences.size(), pass.slots.size());
  if (!pass.parents.empty() && pass.parents.size() != n)
    return bad("{} tokens but {} parents", n, pass.parents.size());
  if (pass.history.size() != n * static_cast<size_t>(plan.n_history))
    return bad("history holds {} tokens, expected {} for each of {} rows", pass.history.size(),
               plan.n_history, n);
  if (pass.outputs.size() > static_cast<size_t>(limits.max_outputs))
    return bad("{} outputs, but the program was loaded for at most {}", pass.outputs.size(),
               limits.max_outputs);
  if (!pass.sampling.empty() && pass.sampling.size() != pass.outputs.size())
    return bad("{} sampling rows for {} outputs", pass.sampling.size(), pass.outputs.size());
  if (pass.phase == Phase::decode && has_state(plan, plan::StateKind::tape) &&
      n > static_cast<size_t>(limits.n_tape_rows))
    return bad("{} decode rows, but a tape holds {}", n, limits.n_tape_rows);
  for (size_t i = 0; i < pass.outputs.size(); ++i) {
    const int32_t row = pass.outputs[i];
    if (row < 0 || static_cast<size_t>(row) >= n || (i > 0 && row <= pass.outputs[i - 1]))
      return bad("output {} is row {}: outputs are rows of the pass, rising", i, row);
  }
  return {};
}

Status check_views(const Plan& plan, const ProgramLimits& limits, const Pass& pass) {
  const bool cached = has_state(plan, plan::StateKind::kv_cache);
  const bool recurrent = has_state(plan, plan::StateKind::recurrent);
  for (size_t v = 0; v < pass.views.size(); ++v) {
    const SequenceView& view = pass.views[v];
    if (view.committed < 0) return bad("sequence {} has {} committed tokens", v, view.committed);
    if (cached && static_cast<size_t>(view.committed) >
                      view.pages.size() * static_cast<size_t>(limits.page_tokens))
      return bad("sequence {} has {} committed tokens but only {} pages of {}", v, view.committed,
                 view.pages.size(), limits.page_tokens);
    for (const int32_t page : view.pages) {
      if (cached && (page < 0 || page >= limits.n_pages))
        return bad("sequence {} uses page {} of {}", v, page, limits.n_pages);
    }
    KAPITSA_TRY(check_tape_rows(limits, view.replay));
    if (!recurrent) continue;
    KAPITSA_TRY(check_state_slot(limits, view.state_slot));
    for (size_t other = 0; other < v; ++other) {
      if (pass.views[other].state_slot == view.state_slot)
        return bad("sequences {} and {} share state slot {}", other, v, view.state_slot);
    }
  }
  return {};
}

Status check_row_place(const Pass& pass, int32_t row) {
  const auto r = static_cast<size_t>(row);
  const int32_t sequence = pass.sequences[r];
  const bool first = row == 0 || pass.sequences[r - 1] != sequence;
  const int32_t parent = pass.parent(row);
  if (parent >= row || parent < -1) return bad("row {} has parent {}", row, parent);
  if (parent >= 0 && pass.sequences[static_cast<size_t>(parent)] != sequence)
    return bad("row {} of sequence {} has a parent in another sequence", row, sequence);
  const int32_t position = pass.positions[r];
  const int32_t committed = pass.views[static_cast<size_t>(sequence)].committed;
  if (parent < 0 && position < committed)
    return bad("row {} is at position {}, inside the {} committed tokens", row, position,
               committed);
  if (parent >= 0 && position != pass.positions[static_cast<size_t>(parent)] + 1)
    return bad("row {} is at position {}, its parent at {}", row, position,
               pass.positions[static_cast<size_t>(parent)]);
  if (pass.phase == Phase::decode) return {};
  if (parent != (first ? -1 : row - 1)) return bad("prefill row {} is not on a chain", row);
  if (first && (position != committed || committed % plan::kGrid != 0))
    return bad("prefill of sequence {} starts at {} after {} committed tokens; it starts at the "
               "committed end, on the grid of {}",
               sequence, position, committed, plan::kGrid);
  return {};
}

Status check_slot(const ProgramLimits& limits, const Pass& pass, size_t row) {
  const int32_t slot = pass.slots[row];
  if (slot < 0 || slot >= int64_t{limits.n_pages} * limits.page_tokens)
    return bad("row {} writes slot {} of {}", row, slot,
               int64_t{limits.n_pages} * limits.page_tokens);
  const SequenceView& view = pass.views[static_cast<size_t>(pass.sequences[row])];
  if (!view.chain) return {};
  const int32_t position = pass.positions[row];
  const auto page = static_cast<size_t>(position / limits.page_tokens);
  if (page >= view.pages.size())
    return bad("row {} is at position {}, past the {} pages of its sequence", row, position,
               view.pages.size());
  const int32_t expected = view.pages[page] * limits.page_tokens + position % limits.page_tokens;
  if (slot != expected)
    return bad("row {} of a chain writes slot {}, its page table says {}", row, slot, expected);
  return {};
}

}  // namespace

Status check_state_slot(const ProgramLimits& limits, int32_t state_slot) {
  if (state_slot >= 0 && state_slot < limits.n_state_slots) return {};
  return bad("state slot {} of {}", state_slot, limits.n_state_slots);
}

Status check_tape_rows(const ProgramLimits& limits, std::span<const int32_t> tape_rows) {
  for (const int32_t row : tape_rows) {
    if (row < 0 || row >= limits.n_tape_rows)
      return bad("replays tape row {} of {}", row, limits.n_tape_rows);
  }
  return {};
}

Status check_pass(const Plan& plan, const ProgramLimits& limits, const Pass& pass) {
  KAPITSA_TRY(check_sizes(plan, limits, pass));
  KAPITSA_TRY(check_views(plan, limits, pass));
  const int64_t vocabulary = smallest_vocabulary(plan, pass.routine);
  const bool cached = has_state(plan, plan::StateKind::kv_cache);
  std::vector<bool> seen(pass.views.size(), false);
  for (int32_t row = 0; row < pass.n_rows(); ++row) {
    const auto r = static_cast<size_t>(row);
    const int32_t sequence = pass.sequences[r];
    if (sequence < 0 || static_cast<size_t>(sequence) >= pass.views.size())
      return bad("row {} is of sequence {} of {}", row, sequence, pass.views.size());
    if (row == 0 || pass.sequences[r - 1] != sequence) {
      if (seen[static_cast<size_t>(sequence)])
        return bad("rows of sequence {} are not adjacent", sequence);
      seen[static_cast<size_t>(sequence)] = true;
    }
    if (pass.tokens[r] < 0 || (vocabulary > 0 && pass.tokens[r] >= vocabulary))
      return bad("row {} holds token {}, outside the vocabulary of {}", row, pass.tokens[r],
                 vocabulary);
    KAPITSA_TRY(check_row_place(pass, row));
    if (cached) KAPITSA_TRY(check_slot(limits, pass, r));
  }
  if (!cached) return {};
  std::vector<int32_t> slots(pass.slots.begin(), pass.slots.end());
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice != slots.end()) return bad("two rows write slot {}", *twice);
  return {};
}

Status check_write(const Plan& plan, const ProgramLimits& limits, plan::BufferId buffer,
                   int32_t first_row, size_t n_values) {
  if (buffer.index < 0 || static_cast<size_t>(buffer.index) >= plan.buffers().size())
    return Error{ErrorCode::invalid_argument, "write: the plan has no such buffer"};
  const plan::Buffer& info = plan.buffer(buffer);
  if (!info.input || info.dtype != DType::f32)
    return Error{ErrorCode::invalid_argument, "write: buffer " + info.name + " is no f32 input"};
  const int64_t rows = info.rows == plan::RowSpace::pass ? limits.max_rows : limits.max_outputs;
  const auto n = static_cast<int64_t>(n_values);
  if (first_row >= 0 && n % info.width == 0 && first_row + n / info.width <= rows) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("write: {} values from row {} of buffer {}, which has {} rows of {}", n,
                           first_row, info.name, rows, info.width)};
}

}  // namespace kapitsa::backend
