#include "backend/cpu/layout.h"

#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/panels.h"
#include "backend/weight_row.h"
#include "base/huge_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace kapitsa::backend::cpu {
namespace {

// ---- Operands ----

bool can_read(const plan::Plan& plan, plan::WeightId id) {
  return !id || can_decode(plan.weight(id));
}

bool is_plain(const plan::Plan& plan, plan::StateId id) {
  const DType dtype = plan.state(id).dtype;
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

bool can_cache(const plan::Plan& plan, plan::StateId id) {
  return is_plain(plan, id) || plan.state(id).dtype == DType::q8_0;
}

template <typename Op>
bool has_operands(const plan::Plan&, const Op&) {
  return true;
}
bool has_operands(const plan::Plan& plan, const plan::EmbedRows& op) {
  return can_read(plan, op.table);
}
bool has_operands(const plan::Plan& plan, const plan::RmsNorm& op) {
  return can_read(plan, op.norm.weight);
}
bool has_operands(const plan::Plan& plan, const plan::Linear& op) {
  return can_read(plan, op.projection.weight) && can_read(plan, op.projection.bias);
}
bool has_operands(const plan::Plan& plan, const plan::NormLinear& op) {
  if (op.projections.size() > kMaxProjections) return false;
  for (const plan::Projection& projection : op.projections) {
    if (!can_read(plan, projection.weight) || !can_read(plan, projection.bias)) return false;
  }
  return can_read(plan, op.norm.weight);
}
bool has_operands(const plan::Plan& plan, const plan::LinearAdd& op) {
  return can_read(plan, op.weight) && can_read(plan, op.bias) &&
         can_read(plan, op.residual.post_norm.weight);
}
bool has_operands(const plan::Plan& plan, const plan::Mlp& op) {
  return can_read(plan, op.residual.post_norm.weight) && can_read(plan, op.norm.weight) &&
         can_read(plan, op.gate) && can_read(plan, op.up) && can_read(plan, op.down);
}
bool has_operands(const plan::Plan& plan, const plan::Head& op) {
  return can_read(plan, op.norm.weight) && can_read(plan, op.weight) &&
         (!op.top_ids || plan.buffer(op.top_ids).width <= plan.buffer(op.logits).width);
}
bool has_operands(const plan::Plan& plan, const plan::ScaleColumns& op) {
  return can_read(plan, op.weight);
}
bool has_operands(const plan::Plan& plan, const plan::SoftplusBias& op) {
  return can_read(plan, op.bias);
}
bool has_operands(const plan::Plan& plan, const plan::CacheAppend& op) {
  return can_cache(plan, op.cache);
}
bool has_operands(const plan::Plan& plan, const plan::Attend& op) {
  // Keys and values have layouts of their own.
  return can_cache(plan, op.k_cache) && can_cache(plan, op.v_cache) && op.k_cache != op.v_cache &&
         can_read(plan, op.sinks);
}
bool has_operands(const plan::Plan& plan, const plan::SelectBlocks& op) {
  return is_plain(plan, op.key_cache) && can_read(plan, op.key_norm.weight);
}
bool has_operands(const plan::Plan& plan, const plan::NgramRows& op) {
  return can_read(plan, op.table);
}
bool has_operands(const plan::Plan& plan, const plan::SoftEmbed& op) {
  return can_read(plan, op.table);
}
bool has_operands(const plan::Plan& plan, const plan::Attention& op) {
  return has_operands(plan, op.attend);
}
bool has_operands(const plan::Plan& plan, const plan::AttentionPrepare& op) {
  return can_cache(plan, op.k_cache) && can_cache(plan, op.v_cache) &&
         can_read(plan, op.q_norm.weight) && can_read(plan, op.k_norm.weight) &&
         can_read(plan, op.v_norm.weight);
}
bool has_operands(const plan::Plan& plan, const plan::CausalConv& op) {
  return can_read(plan, op.weight) && can_read(plan, op.bias);
}
bool has_operands(const plan::Plan& plan, const plan::SsmScan& op) {
  return can_read(plan, op.a) && can_read(plan, op.d);
}
bool has_operands(const plan::Plan& plan, const plan::ExpertLinear& op) {
  return can_read(plan, op.weight);
}
bool has_operands(const plan::Plan& plan, const plan::SelectExperts& op) {
  return can_read(plan, op.router.selection_bias) && can_read(plan, op.router.expert_scale);
}
bool has_operands(const plan::Plan& plan, const plan::TopLogits& op) {
  return plan.buffer(op.ids).width <= plan.buffer(op.logits).width;
}

// ---- Sizes ----

// Adds parts one after another, on lines of their own, and remembers an overflow.
class Packer {
public:
  int64_t add(int64_t count, int64_t element_bytes) {
    int64_t bytes = 0;
    const int64_t offset = total_;
    overflow_ = overflow_ || __builtin_mul_overflow(count, element_bytes, &bytes) ||
                bytes > std::numeric_limits<int64_t>::max() / 4 - total_;
    if (!overflow_) total_ += round_up(bytes, kLine);
    return offset;
  }
  int64_t total() const { return HugeBlock::footprint(total_); }
  bool overflow() const { return overflow_; }

private:
  int64_t total_ = 0;
  bool overflow_ = false;
};

bool is_vector(const plan::Weight& weight) {
  return weight.experts == 1 && weight.out == 1;
}

// f32 vectors are used where they are, if their address allows it.
bool vector_in_place(const plan::Weight& weight) {
  return weight.dtype == DType::f32 && weight.expert_data.empty() && weight.scale.empty() &&
         reinterpret_cast<uintptr_t>(weight.data.data()) % alignof(float) == 0;
}

// Weights that the integer kernels multiply with: those of the steps that project, if their type
// has panels.
void mark_panels(const plan::Plan& plan, const plan::Op& op,
                 std::vector<std::optional<Format>>& formats) {
  const auto mark = [&](plan::WeightId id) {
    if (id) formats[static_cast<size_t>(id.index)] = panel_format(plan.weight(id));
  };
  if (const auto* linear = std::get_if<plan::Linear>(&op)) mark(linear->projection.weight);
  if (const auto* linear = std::get_if<plan::LinearAdd>(&op)) mark(linear->weight);
  if (const auto* head = std::get_if<plan::Head>(&op)) mark(head->weight);
  if (const auto* experts = std::get_if<plan::ExpertLinear>(&op)) mark(experts->weight);
  if (const auto* norm_linear = std::get_if<plan::NormLinear>(&op)) {
    for (const plan::Projection& projection : norm_linear->projections)
      mark(projection.weight);
  }
  if (const auto* mlp = std::get_if<plan::Mlp>(&op)) {
    for (const plan::WeightId id : {mlp->gate, mlp->up, mlp->down})
      mark(id);
  }
}

// Caches that an attention step reads: which hold keys, and how wide the heads are.
Status mark_caches(const plan::Plan& plan, const plan::Op& op, Layout& layout) {
  const plan::Attend* attend = std::get_if<plan::Attend>(&op);
  if (const auto* attention = std::get_if<plan::Attention>(&op)) attend = &attention->attend;
  if (attend == nullptr) return {};
  layout.by_element[static_cast<size_t>(attend->k_cache.index)] = true;
  const auto mark = [&](plan::StateId id, int64_t dim) -> Status {
    int64_t& head_dim = layout.head_dims[static_cast<size_t>(id.index)];
    if (head_dim != 0 && head_dim != dim)
      return Error{ErrorCode::unsupported,
                   fmt::format("cpu: cache {} is read as heads of {} and as heads of {}",
                               plan.state(id).name, head_dim, dim)};
    head_dim = dim;
    return {};
  };
  KAPITSA_TRY(mark(attend->k_cache, attend->q.dim));
  return mark(attend->v_cache, attend->out.dim);
}

// Recurrent states and tapes whose entries have their own layout (ops_recurrent.cpp).
void pad_states(const plan::Op& op, std::vector<int64_t>& widths) {
  const auto pad = [&](const auto& recurrence) {
    widths[static_cast<size_t>(recurrence.memory.state.index)] = state_width(recurrence);
    widths[static_cast<size_t>(recurrence.memory.tape.index)] = tape_width(recurrence);
  };
  if (const auto* delta = std::get_if<plan::DeltaRule>(&op)) pad(*delta);
  if (const auto* ssm = std::get_if<plan::SsmScan>(&op)) pad(*ssm);
}

void add_rope(const plan::Op& op, std::vector<const plan::Rope*>& ropes) {
  const plan::Rope* rope = nullptr;
  if (const auto* apply = std::get_if<plan::ApplyRope>(&op)) rope = &apply->rope;
  if (const auto* prepare = std::get_if<plan::AttentionPrepare>(&op)) rope = &prepare->rope;
  if (rope == nullptr || rope->inv_freq.empty()) return;
  const auto same = [&](const plan::Rope* other) { return Context::same_angles(*other, *rope); };
  if (std::none_of(ropes.begin(), ropes.end(), same)) ropes.push_back(rope);
}

void add_block_rope(const plan::Op& op, std::vector<const plan::SelectBlocks*>& ropes) {
  const auto* select = std::get_if<plan::SelectBlocks>(&op);
  if (select == nullptr || select->rope.inv_freq.empty()) return;
  const auto same = [&](const plan::SelectBlocks* other) {
    return Context::same_blocks(*other, *select);
  };
  if (std::none_of(ropes.begin(), ropes.end(), same)) ropes.push_back(select);
}

Status check_limits(const ProgramLimits& limits) {
  const auto check = [](const char* name, int64_t value, int64_t least) -> Status {
    if (value >= least) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cpu: limit {} is {}, expected at least {}", name, value, least)};
  };
  KAPITSA_TRY(check("max_rows", limits.max_rows, 1));
  KAPITSA_TRY(check("max_outputs", limits.max_outputs, 0));
  KAPITSA_TRY(check("n_pages", limits.n_pages, 0));
  KAPITSA_TRY(check("page_tokens", limits.page_tokens, 1));
  if (limits.page_tokens % kKeyTile != 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cpu: limit page_tokens is {}, expected a multiple of {}",
                             limits.page_tokens, kKeyTile)};
  KAPITSA_TRY(check("n_state_slots", limits.n_state_slots, 0));
  KAPITSA_TRY(check("n_tape_rows", limits.n_tape_rows, 0));
  const int64_t n_slots = int64_t{limits.n_pages} * limits.page_tokens;
  if (n_slots <= std::numeric_limits<int32_t>::max()) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("cpu: {} pages of {} tokens exceed the {} slots that a pass can name",
                           limits.n_pages, limits.page_tokens,
                           std::numeric_limits<int32_t>::max())};
}

}  // namespace

bool supports(const plan::Plan& plan, const plan::Op& op) {
  return std::visit(
      [&](const auto& concrete) {
        if constexpr (Runnable<std::remove_cvref_t<decltype(concrete)>>) {
          return has_operands(plan, concrete);
        } else {
          return false;
        }
      },
      op);
}

Result<Layout> make_layout(const plan::Plan& plan, const ProgramLimits& limits, int n_threads,
                           bool copy_panels) {
  KAPITSA_TRY(check_limits(limits));
  Layout layout;
  Packer buffers, caches, recurrent, weights;
  for (const plan::Buffer& buffer : plan.buffers()) {
    const int64_t rows = buffer.rows == plan::RowSpace::pass ? limits.max_rows : limits.max_outputs;
    layout.buffers.push_back(
        buffers.add(rows * buffer.width, dtype_info(buffer.dtype).block_bytes));
  }
  for (const plan::State& state : plan.states())
    layout.state_widths.push_back(state.width);
  std::vector<bool> has_columns(plan.weights().size());
  layout.formats.resize(plan.weights().size());
  layout.by_element.resize(plan.states().size());
  layout.head_dims.resize(plan.states().size());
  int64_t shared = 0;
  for (const plan::Routine& routine : plan.routines()) {
    for (const plan::Step& step : routine.steps) {
      if (limits.compute == ComputeMode::fast) mark_panels(plan, step.op, layout.formats);
      KAPITSA_TRY(mark_caches(plan, step.op, layout));
      pad_states(step.op, layout.state_widths);
      add_rope(step.op, layout.ropes);
      add_block_rope(step.op, layout.block_ropes);
      if (const auto* conv = std::get_if<plan::CausalConv>(&step.op))
        has_columns[static_cast<size_t>(conv->weight.index)] = true;
      std::visit(
          [&](const auto& op) {
            layout.scratch_bytes = std::max(layout.scratch_bytes, scratch_bytes(plan, limits, op));
            shared = std::max(shared, shared_bytes(plan, limits, op));
          },
          step.op);
    }
  }
  for (size_t i = 0; i < plan.states().size(); ++i) {
    const plan::State& state = plan.states()[i];
    const bool is_cache = state.kind == plan::StateKind::kv_cache;
    const int64_t n_slots = is_cache ? int64_t{limits.n_pages} * limits.page_tokens
                            : state.kind == plan::StateKind::recurrent ? limits.n_state_slots
                                                                       : limits.n_tape_rows;
    if (layout.head_dims[i] == 0) layout.head_dims[i] = state.width;
    const int64_t entry = cache_entry_bytes(state.dtype, layout.by_element[i],
                                            layout.state_widths[i], layout.head_dims[i]);
    layout.entry_bytes.push_back(entry);
    layout.kv_states.push_back(is_cache ? caches.add(n_slots, entry) : -1);
    layout.recurrent.push_back(is_cache ? -1 : recurrent.add(n_slots, entry));
  }
  for (size_t i = 0; i < plan.weights().size(); ++i) {
    const plan::Weight& weight = plan.weights()[i];
    const bool copied = is_vector(weight) && !vector_in_place(weight);
    layout.vectors.push_back(copied ? weights.add(weight.in, sizeof(float)) : -1);
    const auto format = layout.formats[i];
    layout.panels.push_back(format && copy_panels ? weights.add(packed_bytes(weight, *format), 1)
                                                  : -1);
    layout.columns.push_back(has_columns[i] ? weights.add(weight.in * weight.out, sizeof(float))
                                            : -1);
  }
  std::vector<bool> in_weight_block(plan.weights().size());
  for (size_t i = 0; i < in_weight_block.size(); ++i)
    in_weight_block[i] = layout.vectors[i] >= 0 || layout.panels[i] >= 0 || layout.columns[i] >= 0;
  for (const plan::Rope* rope : layout.ropes)
    layout.rope_values.push_back(
        buffers.add(limits.max_rows * 2 * std::ssize(rope->inv_freq), sizeof(float)));
  for (const plan::SelectBlocks* select : layout.block_ropes)
    layout.block_rope_values.push_back(
        buffers.add(block_rope_floats(*select, limits), sizeof(float)));
  layout.scratch = buffers.add(n_threads, layout.scratch_bytes);
  layout.shared = buffers.add(shared, 1);
  if (buffers.overflow() || caches.overflow() || recurrent.overflow() || weights.overflow()) {
    return Error{ErrorCode::out_of_memory, "cpu: the sizes asked for exceed the address space"};
  }
  layout.need = {.weights = weights.total(),
                 .weights_mapped = mapped_bytes(plan, in_weight_block),
                 .kv_cache = caches.total(),
                 .recurrent = recurrent.total(),
                 .buffers = buffers.total()};
  return layout;
}

}  // namespace kapitsa::backend::cpu
