#include "backend/ref/program.h"

#include "backend/check_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace kapitsa::backend::ref {
namespace {

constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();

template <typename T>
concept Supported = requires(Run& run, const T& op) { run_op(run, op); };

}  // namespace

int64_t state_entries(const ProgramLimits& limits, plan::StateKind kind) {
  switch (kind) {
  case plan::StateKind::kv_cache: return int64_t{limits.n_pages} * limits.page_tokens;
  case plan::StateKind::recurrent: return limits.n_state_slots;
  case plan::StateKind::tape: return limits.n_tape_rows;
  }
  return 0;
}

int64_t buffer_rows(const ProgramLimits& limits, plan::RowSpace rows) {
  return rows == plan::RowSpace::pass ? limits.max_rows : limits.max_outputs;
}

RefProgram::RefProgram(plan::Plan plan, const ProgramLimits& limits, const MemoryNeed& memory,
                       bool chunked)
    : plan_(std::move(plan)), limits_(limits), memory_(memory), chunked_(chunked) {
  for (const plan::Buffer& buffer : plan_.buffers()) {
    const auto size = static_cast<size_t>(buffer.width * buffer_rows(limits, buffer.rows));
    BufferData data;
    data.width = buffer.width;
    if (buffer.dtype == DType::i32) {
      data.ids.assign(size, 0);
    } else {
      data.values.assign(size, buffer.input ? 0.0 : kPoison);
    }
    buffers_.push_back(std::move(data));
  }
  for (const plan::State& state : plan_.states()) {
    const auto size = static_cast<size_t>(state.width * state_entries(limits, state.kind));
    const double initial = state.kind == plan::StateKind::recurrent ? 0.0 : kPoison;
    states_.push_back({state.width, state.dtype, std::vector<double>(size, initial)});
  }
}

Status RefProgram::run(const plan::Pass& pass) {
  KAPITSA_TRY(check_pass(plan_, limits_, pass));
  for (const plan::SequenceView& view : pass.views)
    replay(pass.routine, view.state_slot, view.replay);
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (!plan_.buffers()[b].readable && !plan_.buffers()[b].input)
      std::ranges::fill(buffers_[b].values, kPoison);
  }
  Run run = {plan_, pass, limits_.page_tokens, buffers_, states_, chunked_};
  for (const plan::Step& step : plan_.routines()[static_cast<size_t>(pass.routine)].steps) {
    std::visit(
        [&](const auto& op) {
          if constexpr (Supported<std::remove_cvref_t<decltype(op)>>) {
            run_op(run, op);
          } else {
            KAPITSA_CHECK(false, "lowering left an op without a kernel");
          }
        },
        step.op);
  }
  return {};
}

Result<std::span<const float>> RefProgram::read(plan::BufferId buffer, int32_t first_row,
                                                int32_t n_rows) {
  if (buffer.index < 0 || static_cast<size_t>(buffer.index) >= buffers_.size())
    return Error{ErrorCode::invalid_argument, "read: the plan has no such buffer"};
  const plan::Buffer& info = plan_.buffer(buffer);
  if (!info.readable)
    return Error{ErrorCode::invalid_argument, "read: buffer " + info.name + " is not readable"};
  const int64_t rows = buffer_rows(limits_, info.rows);
  if (first_row < 0 || n_rows < 0 || int64_t{first_row} + n_rows > rows)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("read: rows {} to {} of buffer {}, which has {}", first_row,
                             int64_t{first_row} + n_rows, info.name, rows)};
  const BufferData& data = buffers_[static_cast<size_t>(buffer.index)];
  const auto first = static_cast<size_t>(first_row * info.width);
  const auto count = static_cast<size_t>(n_rows * info.width);
  staging_.clear();
  for (size_t i = first; i < first + count; ++i)
    staging_.push_back(data.ids.empty() ? static_cast<float>(data.values[i])
                                        : static_cast<float>(data.ids[i]));
  return std::span<const float>(staging_);
}

Status RefProgram::write(plan::BufferId buffer, int32_t first_row, std::span<const float> values) {
  KAPITSA_TRY(check_write(plan_, limits_, buffer, first_row, values.size()));
  BufferData& data = buffers_[static_cast<size_t>(buffer.index)];
  std::ranges::copy(values, data.values.begin() + first_row * data.width);
  return {};
}

void RefProgram::replay(int32_t routine, int32_t state_slot, std::span<const int32_t> tape_rows) {
  if (static_cast<size_t>(routine) >= plan_.routines().size()) return;
  for (const int32_t row : tape_rows) {
    for (const plan::Step& step : plan_.routines()[static_cast<size_t>(routine)].steps)
      replay_op(plan_, states_, step.op, row, state_slot);
  }
}

template <typename F>
void RefProgram::for_each_state(int32_t state_slot, F f) {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (plan_.states()[i].kind == plan::StateKind::recurrent)
      f(std::as_writable_bytes(states_[i].entry(state_slot)));
  }
}

Status RefProgram::clear_state(int32_t state_slot) {
  KAPITSA_TRY(check_state_slot(limits_, state_slot));
  for_each_state(state_slot, [](std::span<std::byte> bytes) {
    std::ranges::fill(bytes, std::byte{0});  // all bits clear is 0.0
  });
  return {};
}

Status RefProgram::commit(int32_t state_slot, std::span<const int32_t> tape_rows) {
  KAPITSA_TRY(check_state_slot(limits_, state_slot));
  KAPITSA_TRY(check_tape_rows(limits_, tape_rows));
  replay(0, state_slot, tape_rows);
  return {};
}

Status RefProgram::copy_slots(std::span<const SlotCopy> copies) {
  const int64_t n_slots = state_entries(limits_, plan::StateKind::kv_cache);
  for (const SlotCopy& copy : copies) {
    if (copy.from < 0 || copy.to < 0 || copy.from >= n_slots || copy.to >= n_slots)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("copy_slots: {} to {} of {} slots", copy.from, copy.to, n_slots)};
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    if (plan_.states()[i].kind != plan::StateKind::kv_cache) continue;
    for (const SlotCopy& copy : copies)
      std::ranges::copy(states_[i].entry(copy.from), states_[i].entry(copy.to).begin());
  }
  return {};
}

int64_t RefProgram::state_bytes() const {
  int64_t bytes = 0;
  for (const plan::State& state : plan_.states()) {
    if (state.kind == plan::StateKind::recurrent)
      bytes += state.width * static_cast<int64_t>(sizeof(double));
  }
  return bytes;
}

Status RefProgram::save_state(int32_t state_slot, std::span<std::byte> bytes) {
  KAPITSA_TRY(check_state_slot(limits_, state_slot));
  if (std::ssize(bytes) != state_bytes())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("save_state: {} bytes, expected {}", bytes.size(), state_bytes())};
  for_each_state(state_slot, [&](std::span<std::byte> state) {
    std::ranges::copy(state, bytes.begin());
    bytes = bytes.subspan(state.size());
  });
  return {};
}

Status RefProgram::load_state(int32_t state_slot, std::span<const std::byte> bytes) {
  KAPITSA_TRY(check_state_slot(limits_, state_slot));
  if (std::ssize(bytes) != state_bytes())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("load_state: {} bytes, expected {}", bytes.size(), state_bytes())};
  for_each_state(state_slot, [&](std::span<std::byte> state) {
    std::ranges::copy(bytes.first(state.size()), state.begin());
    bytes = bytes.subspan(state.size());
  });
  return {};
}

}  // namespace kapitsa::backend::ref
