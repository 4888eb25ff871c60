#include "plan/plan.h"

#include "plan/expand.h"

#include <algorithm>
#include <utility>

namespace kapitsa::plan {
namespace {

template <typename Item>
bool has_name(const std::vector<Item>& items, const std::string& name) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Item& item) { return item.name == name; });
}

}  // namespace

int64_t row_bytes(const Weight& weight) {
  if (weight.dtype == DType::grouped) return weight.in * weight.group.bits / 8;
  const auto bytes = dtype_bytes(weight.dtype, weight.in);
  KAPITSA_CHECK(bytes.has_value(), "a row is a whole number of blocks");
  return *bytes;
}

std::span<const std::byte> matrix_bytes(const Weight& weight, int64_t expert) {
  if (!weight.expert_data.empty()) return weight.expert_data[static_cast<size_t>(expert)];
  const auto bytes = static_cast<size_t>(row_bytes(weight) * weight.out);
  return weight.data.subspan(static_cast<size_t>(expert) * bytes, bytes);
}

namespace {

// Of an array with as many bytes for each expert.
std::span<const std::byte> expert_part(std::span<const std::byte> all, const Weight& weight,
                                       int64_t expert) {
  const size_t bytes = all.size() / static_cast<size_t>(weight.experts);
  return all.subspan(static_cast<size_t>(expert) * bytes, bytes);
}

}  // namespace

std::span<const std::byte> matrix_scales(const Weight& weight, int64_t expert) {
  if (!weight.expert_scales.empty()) return weight.expert_scales[static_cast<size_t>(expert)];
  return expert_part(weight.scales, weight, expert);
}

std::span<const std::byte> matrix_biases(const Weight& weight, int64_t expert) {
  return expert_part(weight.biases, weight, expert);
}

BufferId Plan::add_buffer(Buffer buffer) {
  KAPITSA_CHECK(buffer.width > 0, "a buffer needs a positive width");
  KAPITSA_CHECK(!has_name(buffers_, buffer.name), "two buffers of one name");
  buffers_.push_back(std::move(buffer));
  return {static_cast<int32_t>(buffers_.size()) - 1};
}

WeightId Plan::add_weight(Weight weight) {
  KAPITSA_CHECK(weight.experts > 0 && weight.out > 0 && weight.in > 0,
                "a weight needs positive sizes");
  weights_.push_back(std::move(weight));
  return {static_cast<int32_t>(weights_.size()) - 1};
}

StateId Plan::add_state(State state) {
  KAPITSA_CHECK(state.width > 0, "a state needs a positive width");
  KAPITSA_CHECK(!has_name(states_, state.name), "two states of one name");
  states_.push_back(std::move(state));
  return {static_cast<int32_t>(states_.size()) - 1};
}

void Plan::begin_routine(std::string name) {
  routines_.push_back({std::move(name), {}});
}

void Plan::add(Op op, std::string label) {
  KAPITSA_CHECK(!routines_.empty(), "begin_routine comes before the first step");
  routines_.back().steps.push_back({std::move(op), std::move(label)});
}

void Plan::attend_to_blocks(int32_t block) {
  for (Routine& routine : routines_) {
    for (Step& step : routine.steps) {
      auto* fused = std::get_if<Attention>(&step.op);
      Attend* attend = fused != nullptr ? &fused->attend : std::get_if<Attend>(&step.op);
      if (attend == nullptr || attend->mask != Mask::causal) continue;
      attend->mask = Mask::block;
      attend->block = block;
    }
  }
}

const Buffer& Plan::buffer(BufferId id) const {
  return buffers_.at(static_cast<size_t>(id.index));
}
const Weight& Plan::weight(WeightId id) const {
  return weights_.at(static_cast<size_t>(id.index));
}
const State& Plan::state(StateId id) const {
  return states_.at(static_cast<size_t>(id.index));
}

BufferId Plan::scratch(const std::string& name, int64_t width, DType dtype, RowSpace rows) {
  const std::string full =
      "~" + name + "." + std::to_string(width) + (rows == RowSpace::output ? ".out" : "");
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name == full) return {static_cast<int32_t>(i)};
  }
  return add_buffer({.name = full, .dtype = dtype, .width = width, .rows = rows});
}

Heads Plan::heads(BufferId id, int32_t count) const {
  const auto width = static_cast<int32_t>(buffer(id).width);
  KAPITSA_CHECK(width % count == 0, "a row does not divide into that many heads");
  return {.buffer = id, .count = count, .dim = width / count, .stride = width / count, .offset = 0};
}

Result<Plan> lower(const Plan& plan, const std::function<bool(const Plan&, const Op&)>& supports) {
  Plan lowered = plan;
  for (Routine& routine : lowered.routines_) {
    std::vector<Step> pending(routine.steps.rbegin(), routine.steps.rend());  // next step last
    routine.steps.clear();
    while (!pending.empty()) {
      Step step = std::move(pending.back());
      pending.pop_back();
      if (supports(lowered, step.op)) {
        routine.steps.push_back(std::move(step));
        continue;
      }
      const auto expansion = expand(step.op, lowered);
      if (!expansion) {
        return Error{ErrorCode::unsupported, std::string("step ") + step.label +
                                                 ": this backend has no kernel for '" +
                                                 op_name(step.op) + "' with these operands"};
      }
      for (auto op = expansion->rbegin(); op != expansion->rend(); ++op) {
        pending.push_back({*op, step.label});
      }
    }
  }
  return lowered;
}

}  // namespace kapitsa::plan
