#include "backend/step_trace.h"

#include <algorithm>
#include <variant>

namespace kapitsa::backend {
namespace {

// One overload for each op that reads more than small vectors.
struct Bytes {
  const plan::Plan& plan;
  const plan::Pass& pass;

  int64_t matrix(plan::WeightId id) const {
    if (!id) return 0;
    const plan::Weight& w = plan.weight(id);
    int64_t bytes = plan::row_bytes(w) * w.out;
    if (!w.scales.empty())
      bytes += static_cast<int64_t>(w.scales.size() + w.biases.size()) / w.experts;
    return bytes;
  }
  int64_t chosen(plan::WeightId id, plan::BufferId ids) const {
    if (!id) return 0;
    const int64_t choices = pass.n_rows() * plan.buffer(ids).width;
    return matrix(id) * std::min(choices, plan.weight(id).experts);
  }
  int64_t entry(plan::StateId id) const {
    const plan::State& state = plan.state(id);
    return dtype_bytes(state.dtype, state.width).value_or(0);
  }
  // Read and written once for each sequence.
  int64_t recurrent(const plan::Recurrent& memory) const {
    return 2 * entry(memory.state) * std::ssize(pass.views);
  }
  int64_t shared(const plan::SharedExpert& expert) const {
    return matrix(expert.gate) + matrix(expert.up) + matrix(expert.mix);
  }

  int64_t operator()(const plan::Linear& op) const { return matrix(op.projection.weight); }
  int64_t operator()(const plan::NormLinear& op) const {
    int64_t bytes = 0;
    for (const plan::Projection& projection : op.projections)
      bytes += matrix(projection.weight);
    return bytes;
  }
  int64_t operator()(const plan::LinearAdd& op) const { return matrix(op.weight); }
  int64_t operator()(const plan::Mlp& op) const {
    return matrix(op.gate) + matrix(op.up) + matrix(op.down);
  }
  int64_t operator()(const plan::Head& op) const {
    return pass.outputs.empty() ? 0 : matrix(op.weight);
  }
  int64_t operator()(const plan::Route& op) const { return matrix(op.weight); }
  int64_t operator()(const plan::ExpertLinear& op) const { return chosen(op.weight, op.ids); }
  int64_t operator()(const plan::ExpertsUp& op) const {
    return chosen(op.gate, op.ids) + chosen(op.up, op.ids) + shared(op.shared);
  }
  int64_t operator()(const plan::ExpertsDown& op) const {
    return chosen(op.down, op.ids) + matrix(op.shared.down);
  }
  int64_t operator()(const plan::CausalConv& op) const { return recurrent(op.memory); }
  int64_t operator()(const plan::DeltaRule& op) const { return recurrent(op.memory); }
  int64_t operator()(const plan::SsmScan& op) const { return recurrent(op.memory); }
  int64_t operator()(const plan::DeltaMix& op) const {
    return recurrent(op.conv_memory) + recurrent(op.delta_memory);
  }
  int64_t operator()(const plan::MambaMix& op) const {
    return recurrent(op.conv_memory) + recurrent(op.ssm_memory);
  }
  // Each sequence's entries once.
  int64_t operator()(const plan::Attend& op) const {
    int64_t entries = 0;
    int32_t row = 0;
    for (size_t s = 0; s < pass.views.size(); ++s) {
      int64_t seen = 0;
      for (; row < pass.n_rows() && pass.sequences[static_cast<size_t>(row)] == static_cast<int>(s);
           ++row)
        seen = std::max<int64_t>(seen, pass.positions[static_cast<size_t>(row)] + 1);
      if (op.window > 0) seen = std::min<int64_t>(seen, op.window);
      if (op.selection) {
        seen = std::min(seen, plan.buffer(op.selection).width * op.selection_block);
      }
      entries += seen;
    }
    return entries * (entry(op.k_cache) + entry(op.v_cache));
  }
  int64_t operator()(const plan::Attention& op) const { return (*this)(op.attend); }
  template <typename Op>
  int64_t operator()(const Op&) const {
    return 0;
  }
};

}  // namespace

int64_t step_bytes(const plan::Plan& plan, const plan::Op& op, const plan::Pass& pass) {
  return std::visit(Bytes{plan, pass}, op);
}

StepTrace::StepTrace(const plan::Plan& plan) : plan_(plan) {
  for (const plan::Routine& routine : plan.routines())
    sums_.emplace_back(routine.steps.size());
}

void StepTrace::begin_pass(const plan::Pass& pass) {
  pass_ = &pass;
}

void StepTrace::begin_step(size_t step) {
  end_step();
  step_ = step;
  running_ = true;
  start_ = Clock::now();
}

void StepTrace::end_step() {
  if (!running_) return;
  const auto routine = static_cast<size_t>(pass_->routine);
  Sum& sum = sums_[routine][step_][static_cast<size_t>(pass_->phase)];
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double per_row = seconds / std::max(pass_->n_rows(), 1);
  sum.best = sum.passes == 0 ? per_row : std::min(sum.best, per_row);
  sum.seconds += seconds;
  sum.passes += 1;
  sum.rows += pass_->n_rows();
  sum.bytes += step_bytes(plan_, plan_.routines()[routine].steps[step_].op, *pass_);
  running_ = false;
}

void StepTrace::end_pass() {
  end_step();
  pass_ = nullptr;
}

std::vector<StepTime> StepTrace::take() {
  std::vector<StepTime> times;
  for (const plan::Phase phase : {plan::Phase::decode, plan::Phase::prefill}) {
    for (size_t r = 0; r < sums_.size(); ++r) {
      for (size_t i = 0; i < sums_[r].size(); ++i) {
        Sum& sum = sums_[r][i][static_cast<size_t>(phase)];
        const plan::Step& step = plan_.routines()[r].steps[i];
        if (sum.passes > 0) {
          times.push_back({.label = step.label,
                           .op = plan::op_name(step.op),
                           .phase = phase,
                           .passes = sum.passes,
                           .rows = sum.rows,
                           .bytes = sum.bytes,
                           .seconds = sum.seconds,
                           .best = sum.best});
        }
        sum = {};
      }
    }
  }
  return times;
}

}  // namespace kapitsa::backend
