#include "backend/cpu/program.h"

#include "backend/check_pass.h"
#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/panels.h"
#include "backend/weight_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace kapitsa::backend::cpu {
namespace {

// How the threads split an op (ops.h).
struct SplitOf {
  const plan::Plan& plan;

  Split rows_of(plan::BufferId id) const {
    return plan.buffer(id).rows == plan::RowSpace::pass ? Split::pass_rows : Split::output_rows;
  }
  Split operator()(const plan::RmsNorm& op) const { return rows_of(op.out.buffer); }
  Split operator()(const plan::L2Norm& op) const { return rows_of(op.x.buffer); }
  Split operator()(const plan::Copy& op) const { return rows_of(op.out.buffer); }
  Split operator()(const plan::ApplyRope& op) const { return rows_of(op.x.buffer); }
  Split operator()(const plan::CacheAppend& op) const { return rows_of(op.in.buffer); }
  Split operator()(const plan::SelectExperts& op) const { return rows_of(op.ids); }
  Split operator()(const plan::TopLogits&) const { return Split::free; }
  Split operator()(const plan::NormLinear&) const { return Split::free; }
  Split operator()(const plan::LinearAdd&) const { return Split::free; }
  Split operator()(const plan::Mlp&) const { return Split::free; }
  Split operator()(const plan::Head&) const { return Split::free; }
  Split operator()(const plan::Linear&) const { return Split::free; }
  Split operator()(const plan::ExpertLinear&) const { return Split::free; }
  Split operator()(const plan::AttentionPrepare&) const { return Split::free; }
  Split operator()(const plan::Attend&) const { return Split::free; }
  Split operator()(const plan::Attention&) const { return Split::free; }
  Split operator()(const plan::CausalConv&) const { return Split::free; }
  Split operator()(const plan::DeltaRule&) const { return Split::free; }
  Split operator()(const plan::SsmScan&) const { return Split::free; }
  Split operator()(const plan::SelectBlocks&) const { return Split::free; }
  Split operator()(const plan::SoftEmbed&) const { return Split::free; }
  template <typename Op>
  Split operator()(const Op& op) const {
    if constexpr (Runnable<Op>) return rows_of(op.out);
    return Split::free;
  }
};

}  // namespace

Result<std::unique_ptr<CpuProgram>> CpuProgram::create(plan::Plan plan, const ProgramLimits& limits,
                                                       const Kernels& kernels,
                                                       std::shared_ptr<ThreadPool> pool,
                                                       bool copy_panels) {
  std::unique_ptr<CpuProgram> program(new CpuProgram);
  program->plan_ = std::move(plan);
  KAPITSA_ASSIGN(program->layout_,
                 make_layout(program->plan_, limits, pool->n_threads(), copy_panels));
  program->pool_ = std::move(pool);
  program->context_.plan = &program->plan_;
  program->context_.kernels = &kernels;
  program->context_.pool = program->pool_.get();
  program->context_.limits = limits;
  KAPITSA_TRY(program->allocate());
  program->bind_steps();
  if (limits.trace) program->trace_ = std::make_unique<StepTrace>(program->plan_);
  return program;
}

Status CpuProgram::allocate() {
  const MemoryNeed& need = layout_.need;
  KAPITSA_ASSIGN(buffer_block_, HugeBlock::allocate(need.buffers, "activations"));
  KAPITSA_ASSIGN(cache_block_, HugeBlock::allocate(need.kv_cache, "the KV cache"));
  KAPITSA_ASSIGN(recurrent_block_, HugeBlock::allocate(need.recurrent, "recurrent states"));
  KAPITSA_ASSIGN(weight_block_, HugeBlock::allocate(need.weights, "weights"));
  for (const int64_t offset : layout_.buffers)
    context_.buffers.push_back(buffer_block_.data() + offset);
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    const plan::State& state = plan_.states()[i];
    const bool is_cache = layout_.kv_states[i] >= 0;
    context_.states.push_back(
        {.data = is_cache ? cache_block_.data() + layout_.kv_states[i]
                          : recurrent_block_.data() + layout_.recurrent[i],
         .by_element = layout_.by_element[i],
         .dtype = state.dtype,
         .width = layout_.state_widths[i],
         .head_dim = layout_.head_dims[i],
         .entry_bytes = layout_.entry_bytes[i],
         .n_tiles = int64_t{context_.limits.n_pages} * context_.limits.page_tokens / kKeyTile});
    if (state.kind == plan::StateKind::recurrent)
      state_bytes_ += context_.states.back().entry_bytes;
  }
  for (size_t i = 0; i < layout_.ropes.size(); ++i)
    context_.ropes.push_back({layout_.ropes[i], reinterpret_cast<float*>(buffer_block_.data() +
                                                                         layout_.rope_values[i])});
  for (size_t i = 0; i < layout_.block_ropes.size(); ++i) {
    const plan::SelectBlocks& op = *layout_.block_ropes[i];
    auto* values = reinterpret_cast<float*>(buffer_block_.data() + layout_.block_rope_values[i]);
    fill_block_rope(op, context_.limits, values);
    context_.block_ropes.push_back({&op, std::ssize(op.rope.inv_freq), values});
  }
  for (size_t i = 0; i < plan_.weights().size(); ++i)
    KAPITSA_TRY(bind_weight(i));
  return {};
}

void CpuProgram::report_copied(const plan::Weight& weight) const {
  if (!context_.limits.copied) return;
  for (const std::span<const std::byte> part : {weight.data, weight.scales, weight.biases})
    context_.limits.copied(part);
  for (const std::span<const std::byte> part : weight.expert_data)
    context_.limits.copied(part);
  for (const std::span<const std::byte> part : weight.expert_scales)
    context_.limits.copied(part);
}

Status CpuProgram::bind_weight(size_t index) {
  const plan::Weight& weight = plan_.weights()[index];
  WeightView view = {.source = &weight,
                     .experts = weight.experts,
                     .out = weight.out,
                     .in = weight.in,
                     .format = layout_.formats[index]};
  if (layout_.vectors[index] >= 0) {
    auto* vector = reinterpret_cast<float*>(weight_block_.data() + layout_.vectors[index]);
    decode_row(weight, 0, 0, {vector, static_cast<size_t>(weight.in)});
    view.vector = vector;
  } else if (weight.experts == 1 && weight.out == 1) {
    view.vector = reinterpret_cast<const float*>(weight.data.data());
  }
  if (layout_.panels[index] >= 0) {
    auto* panels = reinterpret_cast<uint8_t*>(weight_block_.data() + layout_.panels[index]);
    const int64_t per_expert = n_panels(weight);
    const int64_t one_panel = panel_bytes(*view.format, weight.in);
    std::atomic<bool> finite = true;
    pool_->run([&](int thread, int n_threads) {
      const Range own = partition(weight.experts * per_expert, thread, n_threads);
      for (int64_t i = own.begin; i < own.end; ++i)
        if (!pack_panel(weight, *view.format, i / per_expert, i % per_expert,
                        panels + i * one_panel))
          finite = false;
    });
    if (!finite)
      return Error{ErrorCode::corrupt_file,
                   "tensor '" + weight.name +
                       "': expected finite block scales, found infinity or NaN"};
    view.panels = panels;
    report_copied(weight);
  }
  if (layout_.columns[index] >= 0) {
    auto* columns = reinterpret_cast<float*>(weight_block_.data() + layout_.columns[index]);
    std::vector<float> row(static_cast<size_t>(weight.in));
    for (int64_t o = 0; o < weight.out; ++o) {
      decode_row(weight, 0, o, row);
      for (int64_t i = 0; i < weight.in; ++i)
        columns[i * weight.out + o] = row[static_cast<size_t>(i)];
    }
    view.columns = columns;
  }
  context_.weights.push_back(view);
  return {};
}

void CpuProgram::bind_steps() {
  for (const plan::Routine& routine : plan_.routines()) {
    std::vector<BoundStep> bound;
    Split before = Split::free;
    for (const plan::Step& step : routine.steps) {
      const Split split = std::visit(SplitOf{plan_}, step.op);
      bound.push_back({&step.op, split == Split::free || split != before});
      before = split;
    }
    routines_.push_back(std::move(bound));
  }
}

void CpuProgram::run_steps(const std::vector<BoundStep>& steps, int thread, int n_threads) {
  const Worker worker = {.thread = thread,
                         .n_threads = n_threads,
                         .scratch = buffer_block_.data() + layout_.scratch +
                                    thread * layout_.scratch_bytes,
                         .shared = buffer_block_.data() + layout_.shared};
  fill_ropes(context_, worker);
  StepTrace* trace = thread == 0 ? trace_.get() : nullptr;
  for (size_t i = 0; i < steps.size(); ++i) {
    const BoundStep& step = steps[i];
    if (step.meet_before || trace_ != nullptr) pool_->barrier();
    if (trace != nullptr) trace->begin_step(i);
    std::visit(
        [&](const auto& op) {
          if constexpr (Runnable<std::remove_cvref_t<decltype(op)>>) run_op(context_, worker, op);
        },
        *step.op);
  }
}

void CpuProgram::find_sequences(const plan::Pass& pass) {
  context_.sequence_rows.assign(pass.views.size(), {});
  for (int32_t row = 0; row < pass.n_rows(); ++row) {
    const auto sequence = static_cast<size_t>(pass.sequences[static_cast<size_t>(row)]);
    const plan::SequenceView& view = pass.views[sequence];
    SequenceRows& rows = context_.sequence_rows[sequence];
    const bool first = rows.end == 0;
    if (first) rows.begin = row;
    rows.end = row + 1;
    rows.dense = rows.dense && view.chain && pass.parent(row) == (first ? -1 : row - 1) &&
                 pass.positions[static_cast<size_t>(row)] == view.committed + row - rows.begin;
  }
}

Status CpuProgram::run(const plan::Pass& pass) {
  KAPITSA_TRY(check_pass(plan_, context_.limits, pass));
  context_.pass = &pass;
  find_sequences(pass);
  const std::vector<BoundStep>& steps = routines_[static_cast<size_t>(pass.routine)];
  if (trace_ != nullptr) trace_->begin_pass(pass);
  pool_->run([&](int thread, int n_threads) { run_steps(steps, thread, n_threads); });
  if (trace_ != nullptr) trace_->end_pass();
  context_.pass = nullptr;
  last_rows_ = pass.n_rows();
  last_outputs_ = static_cast<int32_t>(pass.outputs.size());
  return {};
}

Result<std::span<const float>> CpuProgram::read(plan::BufferId buffer, int32_t first_row,
                                                int32_t n_rows) {
  if (buffer.index < 0 || std::cmp_greater_equal(buffer.index, plan_.buffers().size())) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("read: buffer {} of {}", buffer.index, plan_.buffers().size())};
  }
  const plan::Buffer& b = plan_.buffer(buffer);
  const int32_t available = b.rows == plan::RowSpace::pass ? last_rows_ : last_outputs_;
  if (first_row < 0 || n_rows < 0 || first_row > available - n_rows) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("read: rows {} to {} of '{}', which holds {} rows", first_row,
                             int64_t{first_row} + n_rows, b.name, available)};
  }
  const auto n = static_cast<size_t>(n_rows * b.width);
  if (b.dtype == DType::i32) {
    const int32_t* ids = context_.i32(buffer) + first_row * b.width;
    read_ids_.resize(n);
    std::transform(ids, ids + n, read_ids_.begin(),
                   [](int32_t id) { return static_cast<float>(id); });
    return std::span<const float>(read_ids_);
  }
  return std::span<const float>(context_.f32(buffer) + first_row * b.width, n);
}

Status CpuProgram::write(plan::BufferId buffer, int32_t first_row, std::span<const float> values) {
  KAPITSA_TRY(check_write(plan_, context_.limits, buffer, first_row, values.size()));
  std::ranges::copy(values, context_.f32(buffer) + first_row * plan_.buffer(buffer).width);
  return {};
}

Status CpuProgram::check_snapshot(int32_t state_slot, size_t n_bytes) const {
  KAPITSA_TRY(check_state_slot(context_.limits, state_slot));
  if (std::cmp_equal(n_bytes, state_bytes_)) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("a snapshot has {} bytes, not {}", state_bytes_, n_bytes)};
}

Status CpuProgram::clear_state(int32_t state_slot) {
  KAPITSA_TRY(check_state_slot(context_.limits, state_slot));
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    if (plan_.states()[i].kind != plan::StateKind::recurrent) continue;
    const StateView& state = context_.states[i];
    std::memset(state.data + state_slot * state.entry_bytes, 0,
                static_cast<size_t>(state.entry_bytes));
  }
  return {};
}

Status CpuProgram::commit(int32_t state_slot, std::span<const int32_t> tape_rows) {
  KAPITSA_TRY(check_state_slot(context_.limits, state_slot));
  KAPITSA_TRY(check_tape_rows(context_.limits, tape_rows));
  pool_->run([&](int thread, int n_threads) {
    const Worker worker = {.thread = thread, .n_threads = n_threads};
    for (const BoundStep& step : routines_.front()) {
      std::visit(
          [&](const auto& op) {
            if constexpr (Replayable<std::remove_cvref_t<decltype(op)>>)
              replay_op(context_, worker, op, state_slot, tape_rows);
          },
          *step.op);
    }
  });
  return {};
}

Status CpuProgram::copy_slots(std::span<const SlotCopy> copies) {
  const int64_t n_slots = int64_t{context_.limits.n_pages} * context_.limits.page_tokens;
  for (const SlotCopy& copy : copies) {
    if (copy.from < 0 || copy.to < 0 || copy.from >= n_slots || copy.to >= n_slots) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("copy of slot {} to {}, expected 0 to {}", copy.from, copy.to, n_slots - 1)};
    }
  }
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    if (plan_.states()[i].kind != plan::StateKind::kv_cache) continue;
    const StateView& cache = context_.states[i];
    for (const SlotCopy& copy : copies) {
      if (copy.from != copy.to) copy_entry(cache, copy.from, copy.to);
    }
  }
  return {};
}

Status CpuProgram::save_state(int32_t state_slot, std::span<std::byte> bytes) {
  KAPITSA_TRY(check_snapshot(state_slot, bytes.size()));
  std::byte* to = bytes.data();
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    if (plan_.states()[i].kind != plan::StateKind::recurrent) continue;
    const StateView& state = context_.states[i];
    std::memcpy(to, state.data + state_slot * state.entry_bytes,
                static_cast<size_t>(state.entry_bytes));
    to += state.entry_bytes;
  }
  return {};
}

Status CpuProgram::load_state(int32_t state_slot, std::span<const std::byte> bytes) {
  KAPITSA_TRY(check_snapshot(state_slot, bytes.size()));
  const std::byte* from = bytes.data();
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    if (plan_.states()[i].kind != plan::StateKind::recurrent) continue;
    const StateView& state = context_.states[i];
    std::memcpy(state.data + state_slot * state.entry_bytes, from,
                static_cast<size_t>(state.entry_bytes));
    from += state.entry_bytes;
  }
  return {};
}

}  // namespace kapitsa::backend::cpu
