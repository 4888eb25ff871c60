#include "backend/cuda/layout.h"

#include "backend/cuda/ops.h"
#include "backend/weight_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace kapitsa::backend::cuda {
namespace {

constexpr int64_t kAlign = 256;  // bytes; what cudaMalloc aligns to
constexpr int32_t kMaxViews = 64;

// Adds parts one after another and remembers an overflow.
class Packer {
public:
  int64_t add(int64_t count, int64_t element_bytes) {
    int64_t bytes = 0;
    const int64_t offset = total_;
    overflow_ = overflow_ || __builtin_mul_overflow(count, element_bytes, &bytes) ||
                bytes > std::numeric_limits<int64_t>::max() / 4 - total_;
    if (!overflow_) total_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return offset;
  }
  int64_t total() const { return total_; }
  bool overflow() const { return overflow_; }

private:
  int64_t total_ = 0;
  bool overflow_ = false;
};

bool can_cache(const plan::Plan& plan, plan::StateId id) {
  const DType dtype = plan.state(id).dtype;
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0;
}

template <typename Op>
bool has_types(const plan::Plan&, const Op&) {
  return true;
}
bool has_types(const plan::Plan& plan, const plan::CacheAppend& op) {
  return can_cache(plan, op.cache);
}
bool has_types(const plan::Plan& plan, const plan::Attend& op) {
  return can_cache(plan, op.k_cache) && can_cache(plan, op.v_cache);
}
bool has_types(const plan::Plan& plan, const plan::Attention& op) {
  return has_types(plan, op.attend);
}
bool has_types(const plan::Plan& plan, const plan::AttentionPrepare& op) {
  return can_cache(plan, op.k_cache) && can_cache(plan, op.v_cache);
}
bool has_types(const plan::Plan& plan, const plan::SelectBlocks& op) {
  return can_cache(plan, op.key_cache);
}

Status check_limits(const ProgramLimits& limits) {
  const auto check = [](const char* name, int64_t value, int64_t least) -> Status {
    if (value >= least) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cuda: limit {} is {}, expected at least {}", name, value, least)};
  };
  KAPITSA_TRY(check("max_rows", limits.max_rows, 1));
  KAPITSA_TRY(check("max_outputs", limits.max_outputs, 0));
  KAPITSA_TRY(check("n_pages", limits.n_pages, 0));
  KAPITSA_TRY(check("page_tokens", limits.page_tokens, 1));
  KAPITSA_TRY(check("n_state_slots", limits.n_state_slots, 0));
  KAPITSA_TRY(check("n_tape_rows", limits.n_tape_rows, 0));
  constexpr int32_t kMaxGridRows = 65535;
  if (std::max(limits.max_rows, limits.max_outputs) > kMaxGridRows)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("cuda: {} rows in a pass, expected at most {}", limits.max_rows, kMaxGridRows)};
  if (int64_t{limits.n_pages} * limits.page_tokens <= std::numeric_limits<int32_t>::max())
    return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("cuda: {} pages of {} tokens exceed the {} slots that a pass can name",
                           limits.n_pages, limits.page_tokens,
                           std::numeric_limits<int32_t>::max())};
}

Status check_weights(const plan::Plan& plan) {
  for (const plan::Weight& weight : plan.weights()) {
    if (!can_decode(weight))
      return Error{ErrorCode::unsupported,
                   fmt::format("cuda: weight {} is {}, which it cannot decode", weight.name,
                               dtype_info(weight.dtype).name)};
    if (weight.data.empty() && weight.expert_data.empty())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("cuda: weight {} has no data", weight.name)};
  }
  return {};
}

PassLayout make_pass_layout(const plan::Plan& plan, const ProgramLimits& limits) {
  PassLayout p;
  p.max_views = std::min(limits.max_rows, kMaxViews);
  int64_t next = PassView::kCounts;
  const auto take = [&](int64_t n) {
    const int64_t offset = next;
    next += n;
    return offset;
  };
  for (int64_t* rows : {&p.tokens, &p.positions, &p.sequences, &p.slots, &p.parents, &p.depth})
    *rows = take(limits.max_rows);
  p.history = take(int64_t{limits.max_rows} * plan.n_history);
  p.outputs = take(limits.max_outputs);
  for (int64_t* views : {&p.first_row, &p.end_row, &p.committed, &p.state_slot, &p.first_page,
                         &p.first_replay, &p.n_replay})
    *views = take(p.max_views);
  p.lists = next;
  p.capacity = next + p.max_views * (int64_t{limits.n_tape_rows} + limits.n_pages);
  return p;
}

void add_rope(const plan::Rope& rope, std::vector<const plan::Rope*>& ropes) {
  if (rope.inv_freq.empty()) return;
  const auto same = [&](const plan::Rope* other) { return Context::same_angles(*other, rope); };
  if (std::none_of(ropes.begin(), ropes.end(), same)) ropes.push_back(&rope);
}

// How the steps of a plan use a weight.
struct WeightUse {
  bool as_plain = false;  // elements one by one: taps of a convolution
  bool in_tiles = false;
};

// Marks the matrices of ops that multiply with tiles.
void mark_tiles(const plan::Plan& plan, const plan::Op& op, std::vector<WeightUse>& uses) {
  const auto mark = [&](plan::WeightId id) { uses[static_cast<size_t>(id.index)].in_tiles = true; };
  if (const auto* linear = std::get_if<plan::Linear>(&op)) {
    if (fits_tiles(plan, *linear)) mark(linear->projection.weight);
  }
  if (const auto* add = std::get_if<plan::LinearAdd>(&op)) mark(add->weight);
  if (const auto* norm_linear = std::get_if<plan::NormLinear>(&op)) {
    for (const plan::Projection& projection : norm_linear->projections)
      mark(projection.weight);
  }
  if (const auto* up = std::get_if<plan::ExpertsUp>(&op)) {
    for (const plan::WeightId id : {up->gate, up->up, up->shared.gate, up->shared.up}) {
      if (id) mark(id);
    }
  }
  if (const auto* down = std::get_if<plan::ExpertsDown>(&op)) {
    mark(down->down);
    if (down->shared.up) mark(down->shared.down);
  }
  if (const auto* mlp = std::get_if<plan::Mlp>(&op)) {
    for (const plan::WeightId id : {mlp->gate, mlp->up, mlp->down}) {
      if (id) mark(id);
    }
  }
}

// Whether kernels decode this encoding; the others lie on the card as f32.
bool has_kernels(DType dtype) {
  switch (dtype) {
  case DType::iq1_s:
  case DType::iq1_m:
  case DType::iq2_xxs:
  case DType::iq2_xs:
  case DType::iq2_s:
  case DType::iq3_xxs:
  case DType::iq3_s:
  case DType::f64: return false;
  default: return true;
  }
}

// Bytes of all scales of a grouped weight.
int64_t scale_bytes(const plan::Weight& weight) {
  int64_t bytes = std::ssize(weight.scales);
  for (const std::span<const std::byte> part : weight.expert_scales)
    bytes += std::ssize(part);
  return bytes;
}

WeightPlace place_weight(const plan::Weight& weight, const WeightUse& use, Packer& weights) {
  WeightPlace place;
  place.plain =
      use.as_plain || (weight.experts == 1 && weight.out == 1) || !has_kernels(weight.dtype);
  if (place.plain) {
    place.data = weights.add(weight.experts * weight.out * weight.in, sizeof(float));
    return place;
  }
  if (use.in_tiles) {
    place.format = tile_format(weight.dtype, weight.group.mode, weight.in);
    place.data =
        weights.add(weight.experts * tiles_of(weight.out), tile_bytes(place.format, weight.in));
    if (!weight.scale.empty()) place.factor = weights.add(std::ssize(weight.scale), sizeof(float));
    return place;
  }
  place.data = weights.add(weight.experts * weight.out, plan::row_bytes(weight));
  if (scale_bytes(weight) > 0) place.scales = weights.add(scale_bytes(weight), 1);
  if (!weight.biases.empty()) place.biases = weights.add(std::ssize(weight.biases), 1);
  if (!weight.scale.empty()) place.factor = weights.add(std::ssize(weight.scale), sizeof(float));
  return place;
}

}  // namespace

bool supports(const plan::Plan& plan, const plan::Op& op, ComputeMode compute) {
  return std::visit(
      [&](const auto& concrete) {
        using Concrete = std::remove_cvref_t<decltype(concrete)>;
        if constexpr (Runnable<Concrete>) {
          if constexpr (Tiled<Concrete> && !std::is_same_v<Concrete, plan::Linear>) {
            if (compute != ComputeMode::fast || !fits_tiles(plan, concrete)) return false;
          }
          return has_types(plan, concrete) && has_shape(plan, concrete);
        } else {
          return false;
        }
      },
      op);
}

int64_t entries_of(const ProgramLimits& limits, plan::StateKind kind) {
  switch (kind) {
  case plan::StateKind::kv_cache: return int64_t{limits.n_pages} * limits.page_tokens;
  case plan::StateKind::recurrent: return limits.n_state_slots;
  case plan::StateKind::tape: return limits.n_tape_rows;
  }
  return 0;
}

Result<Layout> make_layout(const plan::Plan& plan, const ProgramLimits& limits) {
  KAPITSA_TRY(check_limits(limits));
  KAPITSA_TRY(check_weights(plan));
  Layout layout;
  Packer buffers, caches, recurrent, weights;
  for (const plan::Buffer& buffer : plan.buffers()) {
    const int64_t rows = buffer.rows == plan::RowSpace::pass ? limits.max_rows : limits.max_outputs;
    layout.buffers.push_back(
        buffers.add(rows * buffer.width, dtype_info(buffer.dtype).block_bytes));
  }
  for (const plan::State& state : plan.states()) {
    Packer& packer = state.kind == plan::StateKind::kv_cache ? caches : recurrent;
    const auto entry = dtype_bytes(state.dtype, state.width);
    KAPITSA_CHECK(entry.has_value(), "an entry is a whole number of blocks");
    layout.states.push_back(packer.add(entries_of(limits, state.kind), *entry));
  }
  std::vector<WeightUse> uses(plan.weights().size());
  int64_t scratch = 0;
  SkinnyScratch tile_scratch_need;
  int64_t list_bytes = 0;
  for (const plan::Routine& routine : plan.routines()) {
    for (const plan::Step& step : routine.steps) {
      if (const auto* conv = std::get_if<plan::CausalConv>(&step.op))
        uses[static_cast<size_t>(conv->weight.index)].as_plain = true;
      if (const auto* delta = std::get_if<plan::DeltaMix>(&step.op))
        uses[static_cast<size_t>(delta->conv.index)].as_plain = true;
      if (const auto* mamba = std::get_if<plan::MambaMix>(&step.op))
        uses[static_cast<size_t>(mamba->conv.index)].as_plain = true;
      if (limits.compute == ComputeMode::fast) mark_tiles(plan, step.op, uses);
      if (const auto* up = std::get_if<plan::ExpertsUp>(&step.op))
        list_bytes =
            std::max(list_bytes,
                     expert_list_bytes(limits, static_cast<int32_t>(plan.weight(up->up).experts)));
      if (const auto* down = std::get_if<plan::ExpertsDown>(&step.op))
        list_bytes = std::max(
            list_bytes,
            expert_list_bytes(limits, static_cast<int32_t>(plan.weight(down->down).experts)));
      if (const auto* route = std::get_if<plan::Route>(&step.op))
        list_bytes = std::max(list_bytes, expert_list_bytes(limits, route->router.n_experts));
      if (const auto* apply = std::get_if<plan::ApplyRope>(&step.op))
        add_rope(apply->rope, layout.ropes);
      if (const auto* prepare = std::get_if<plan::AttentionPrepare>(&step.op))
        add_rope(prepare->rope, layout.ropes);
      if (const auto* select = std::get_if<plan::SelectBlocks>(&step.op))
        add_rope(select->rope, layout.ropes);
      std::visit(
          [&](const auto& op) {
            scratch = std::max(scratch, scratch_bytes(plan, limits, op));
            if constexpr (Tiled<std::remove_cvref_t<decltype(op)>>) {
              const SkinnyScratch wanted = tile_scratch(plan, limits, op);
              tile_scratch_need.partial = std::max(tile_scratch_need.partial, wanted.partial);
              tile_scratch_need.counters = std::max(tile_scratch_need.counters, wanted.counters);
            }
          },
          step.op);
    }
  }
  for (size_t i = 0; i < plan.weights().size(); ++i)
    layout.weights.push_back(place_weight(plan.weights()[i], uses[i], weights));
  for (const plan::Rope* rope : layout.ropes)
    layout.rope_values.push_back(buffers.add(std::ssize(rope->inv_freq), sizeof(float)));
  layout.pass = make_pass_layout(plan, limits);
  layout.pass_data = buffers.add(layout.pass.capacity, sizeof(int32_t));
  layout.replay_data = buffers.add(3 + limits.n_tape_rows, sizeof(int32_t));
  layout.scratch = buffers.add(scratch, 1);
  layout.partial = buffers.add(tile_scratch_need.partial, sizeof(float));
  layout.experts = buffers.add(list_bytes, 1);
  layout.counters = buffers.add(tile_scratch_need.counters, sizeof(int32_t));
  if (buffers.overflow() || caches.overflow() || recurrent.overflow() || weights.overflow())
    return Error{ErrorCode::out_of_memory, "cuda: the sizes asked for exceed the address space"};
  layout.need = {.weights = weights.total(),
                 .kv_cache = caches.total(),
                 .recurrent = recurrent.total(),
                 .buffers = buffers.total()};
  return layout;
}

}  // namespace kapitsa::backend::cuda
