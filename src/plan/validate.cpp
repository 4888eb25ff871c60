// The operand rules of every primitive, checked on the full expansion of a Plan. The rules are
// those of primitives.h; each error says which operand of which step breaks one.
#include "plan/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

namespace kapitsa::plan {
namespace {

Error bad(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message)};
}

template <typename... Args>
Error wrong(fmt::format_string<Args...> format, Args&&... args) {
  return bad(fmt::format(format, std::forward<Args>(args)...));
}

// The rules for one kind of operand. `what` is the operand's name in primitives.h.
class Rules {
public:
  explicit Rules(const Plan& plan) : plan_(plan) {}

  const Plan& plan() const { return plan_; }
  int64_t width(BufferId id) const { return plan_.buffer(id).width; }
  const Weight& weight(WeightId id) const { return plan_.weight(id); }

  Status buffer(const char* what, BufferId id, int64_t width, DType dtype = DType::f32) const {
    KAPITSA_TRY(exists(what, id, dtype));
    const Buffer& found = plan_.buffer(id);
    if (width > 0 && found.width != width)
      return wrong("{} ({}) is {} wide, expected {}", what, found.name, found.width, width);
    return {};
  }
  Status exists(const char* what, BufferId id, DType dtype = DType::f32) const {
    if (id.index < 0 || static_cast<size_t>(id.index) >= plan_.buffers().size())
      return wrong("{} is not a buffer of the plan", what);
    const Buffer& found = plan_.buffer(id);
    if (found.dtype != dtype)
      return wrong("{} ({}) is {}, expected {}", what, found.name, dtype_info(found.dtype).name,
                   dtype_info(dtype).name);
    return {};
  }
  Status heads(const char* what, const Heads& heads) const {
    KAPITSA_TRY(exists(what, heads.buffer));
    return inside(what, heads);
  }
  Status inside(const char* what, const Heads& heads) const {
    const Buffer& found = plan_.buffer(heads.buffer);
    const int64_t end = int64_t{heads.offset} + int64_t{heads.count - 1} * heads.stride + heads.dim;
    if (heads.count < 1 || heads.dim < 1 || heads.offset < 0 ||
        (heads.count > 1 && heads.stride < heads.dim) || end > found.width)
      return wrong("{}: {} heads of {} at offset {} with stride {} do not fit into {}, {} wide",
                   what, heads.count, heads.dim, heads.offset, heads.stride, found.name,
                   found.width);
    return {};
  }
  // A vector of n, any dtype; or absent where it may be.
  Status vector(const char* what, WeightId id, int64_t n, bool optional = false) const {
    if (!id && optional) return {};
    return matrix(what, id, 1, n);
  }
  Status matrix(const char* what, WeightId id, int64_t out, int64_t in, int64_t experts = 1) const {
    KAPITSA_TRY(weight_exists(what, id));
    const Weight& found = plan_.weight(id);
    if (found.experts != experts || found.out != out || found.in != in)
      return wrong("{} ({}) is ({}, {}, {}), expected ({}, {}, {})", what, found.name,
                   found.experts, found.out, found.in, experts, out, in);
    return {};
  }
  Status weight_exists(const char* what, WeightId id) const {
    if (id.index < 0 || static_cast<size_t>(id.index) >= plan_.weights().size())
      return wrong("{} is not a weight of the plan", what);
    return {};
  }
  Status norm(const char* what, const Norm& norm, const Heads& x) const {
    if (!norm.present) return wrong("{} is absent", what);
    if (!norm.weight) return {};
    KAPITSA_TRY(weight_exists(what, norm.weight));
    const bool whole = weight(norm.weight).in == int64_t{x.count} * x.dim;
    return vector(what, norm.weight, whole ? int64_t{x.count} * x.dim : x.dim);
  }
  Status state(const char* what, StateId id, StateKind kind, int64_t width) const {
    if (id.index < 0 || static_cast<size_t>(id.index) >= plan_.states().size())
      return wrong("{} is not a state of the plan", what);
    const State& found = plan_.state(id);
    if (found.kind != kind) return wrong("{} ({}) is a state of another kind", what, found.name);
    if (found.width != width)
      return wrong("{} ({}) is {} wide, expected {}", what, found.name, found.width, width);
    if (kind != StateKind::kv_cache && found.dtype != DType::f32)
      return wrong("{} ({}) is {}, expected f32", what, found.name, dtype_info(found.dtype).name);
    return {};
  }
  // A cache of `count` heads; blocks of codes do not reach from one head into the next.
  Status cache(const char* what, StateId id, int64_t count, int64_t dim) const {
    KAPITSA_TRY(state(what, id, StateKind::kv_cache, count * dim));
    const DTypeInfo& type = dtype_info(plan_.state(id).dtype);
    if (type.block_elements == 1 || dim % type.block_elements == 0) return {};
    return wrong("{} ({}) is {}, in blocks of {}, which do not divide heads of {}", what,
                 plan_.state(id).name, type.name, type.block_elements, dim);
  }
  Status memory(const Recurrent& memory, int64_t state_width, int64_t tape_width) const {
    KAPITSA_TRY(state("memory.state", memory.state, StateKind::recurrent, state_width));
    return state("memory.tape", memory.tape, StateKind::tape, tape_width);
  }
  // All in one row space; these buffers exist.
  Status same_rows(std::initializer_list<BufferId> ids) const {
    for (const BufferId id : ids) {
      if (plan_.buffer(id).rows != plan_.buffer(*ids.begin()).rows)
        return wrong("{} has rows of the pass and {} has output rows, or the reverse",
                     plan_.buffer(*ids.begin()).name, plan_.buffer(id).name);
    }
    return {};
  }
  // Needs the row's token, position or place in its sequence.
  Status pass_rows(std::initializer_list<BufferId> ids) const {
    for (const BufferId id : ids) {
      if (plan_.buffer(id).rows != RowSpace::pass)
        return wrong("{} has output rows; the op needs rows of the pass", plan_.buffer(id).name);
    }
    return {};
  }
  Status apart(BufferId out, std::initializer_list<BufferId> ids) const {
    for (const BufferId id : ids) {
      if (id == out) return wrong("out ({}) is also an input", plan_.buffer(out).name);
    }
    return {};
  }
  // An elementwise op of one input.
  Status unary(BufferId in, BufferId out) const {
    KAPITSA_TRY(exists("in", in));
    KAPITSA_TRY(buffer("out", out, width(in)));
    return same_rows({in, out});
  }
  Status rope(const char* what, const Rope& rope, int32_t dim) const {
    if (2 * std::ssize(rope.inv_freq) <= dim) return {};
    return wrong("{} rotates {} elements of heads of {}", what, 2 * rope.inv_freq.size(), dim);
  }

private:
  const Plan& plan_;
};

Status same_shape(const Heads& a, const Heads& b) {
  if (a.count == b.count && a.dim == b.dim) return {};
  return wrong("in has {} heads of {} and out {} of {}", a.count, a.dim, b.count, b.dim);
}

Status check(const Rules& rules, const EmbedRows& op) {
  KAPITSA_TRY(rules.weight_exists("table", op.table));
  const Weight& table = rules.weight(op.table);
  KAPITSA_TRY(rules.matrix("table", op.table, table.out, table.in));
  KAPITSA_TRY(rules.buffer("out", op.out, table.in));
  return rules.pass_rows({op.out});
}

Status check(const Rules& rules, const RmsNorm& op) {
  KAPITSA_TRY(rules.heads("in", op.in));
  KAPITSA_TRY(rules.heads("out", op.out));
  KAPITSA_TRY(same_shape(op.in, op.out));
  KAPITSA_TRY(rules.norm("norm", op.norm, op.in));
  return rules.same_rows({op.in.buffer, op.out.buffer});
}

Status check(const Rules& rules, const L2Norm& op) {
  return rules.heads("x", op.x);
}

Status check(const Rules& rules, const Linear& op) {
  KAPITSA_TRY(rules.exists("in", op.in));
  KAPITSA_TRY(rules.weight_exists("weight", op.projection.weight));
  const int64_t out = rules.weight(op.projection.weight).out;
  KAPITSA_TRY(rules.matrix("weight", op.projection.weight, out, rules.width(op.in)));
  KAPITSA_TRY(rules.vector("bias", op.projection.bias, out, true));
  KAPITSA_TRY(rules.buffer("out", op.projection.out, out));
  KAPITSA_TRY(rules.apart(op.projection.out, {op.in}));
  return rules.same_rows({op.in, op.projection.out});
}

Status check(const Rules& rules, const Add& op) {
  KAPITSA_TRY(rules.exists("a", op.a));
  KAPITSA_TRY(rules.buffer("b", op.b, rules.width(op.a)));
  KAPITSA_TRY(rules.buffer("out", op.out, rules.width(op.a)));
  return rules.same_rows({op.a, op.b, op.out});
}

Status check(const Rules& rules, const Mul& op) {
  KAPITSA_TRY(rules.exists("a", op.a));
  KAPITSA_TRY(rules.exists("b", op.b));
  if (rules.width(op.a) % rules.width(op.b) != 0)
    return wrong("b is {} wide, which does not divide the {} of a", rules.width(op.b),
                 rules.width(op.a));
  KAPITSA_TRY(rules.buffer("out", op.out, rules.width(op.a)));
  if (rules.width(op.b) != rules.width(op.a)) KAPITSA_TRY(rules.apart(op.out, {op.b}));
  return rules.same_rows({op.a, op.b, op.out});
}

Status check(const Rules& rules, const Affine& op) {
  return rules.unary(op.in, op.out);
}
Status check(const Rules& rules, const Activate& op) {
  return rules.unary(op.in, op.out);
}
Status check(const Rules& rules, const Softmax& op) {
  return rules.unary(op.in, op.out);
}

Status check(const Rules& rules, const ScaleColumns& op) {
  KAPITSA_TRY(rules.unary(op.in, op.out));
  return rules.vector("weight", op.weight, rules.width(op.in));
}

Status check(const Rules& rules, const SoftplusBias& op) {
  KAPITSA_TRY(rules.unary(op.in, op.out));
  if (!(op.low <= op.high)) return wrong("low {} is above high {}", op.low, op.high);
  return rules.vector("bias", op.bias, rules.width(op.in));
}

Status check(const Rules& rules, const Softcap& op) {
  KAPITSA_TRY(rules.unary(op.in, op.out));
  if (!(op.cap > 0.0F)) return wrong("cap is {}", op.cap);
  return {};
}

Status check(const Rules& rules, const Copy& op) {
  if (op.in.buffer.index >= 0 &&
      static_cast<size_t>(op.in.buffer.index) < rules.plan().buffers().size() &&
      rules.plan().buffer(op.in.buffer).dtype == DType::i32) {
    KAPITSA_TRY(rules.exists("out", op.out.buffer, DType::i32));
    KAPITSA_TRY(rules.inside("in", op.in));
    KAPITSA_TRY(rules.inside("out", op.out));
  } else {
    KAPITSA_TRY(rules.heads("in", op.in));
    KAPITSA_TRY(rules.heads("out", op.out));
  }
  KAPITSA_TRY(same_shape(op.in, op.out));
  KAPITSA_TRY(rules.apart(op.out.buffer, {op.in.buffer}));
  return rules.same_rows({op.in.buffer, op.out.buffer});
}

Status check(const Rules& rules, const Repeat& op) {
  KAPITSA_TRY(rules.exists("in", op.in));
  if (op.copies < 1) return wrong("copies is {}", op.copies);
  KAPITSA_TRY(rules.buffer("out", op.out, op.copies * rules.width(op.in)));
  KAPITSA_TRY(rules.apart(op.out, {op.in}));
  return rules.same_rows({op.in, op.out});
}

Status check(const Rules& rules, const SumGroups& op) {
  KAPITSA_TRY(rules.exists("in", op.in));
  if (op.groups < 1 || rules.width(op.in) % op.groups != 0)
    return wrong("{} groups do not divide the {} of in", op.groups, rules.width(op.in));
  KAPITSA_TRY(rules.buffer("out", op.out, rules.width(op.in) / op.groups));
  KAPITSA_TRY(rules.apart(op.out, {op.in}));
  return rules.same_rows({op.in, op.out});
}

Status check(const Rules& rules, const GroupDot& op) {
  KAPITSA_TRY(rules.exists("a", op.a));
  KAPITSA_TRY(rules.buffer("b", op.b, rules.width(op.a)));
  if (op.groups < 1 || rules.width(op.a) % op.groups != 0)
    return wrong("{} groups do not divide the {} of a", op.groups, rules.width(op.a));
  KAPITSA_TRY(rules.buffer("out", op.out, op.groups));
  KAPITSA_TRY(rules.apart(op.out, {op.a, op.b}));
  return rules.same_rows({op.a, op.b, op.out});
}

Status check(const Rules& rules, const ApplyRope& op) {
  KAPITSA_TRY(rules.heads("x", op.x));
  KAPITSA_TRY(rules.rope("rope", op.rope, op.x.dim));
  return rules.pass_rows({op.x.buffer});
}

Status check(const Rules& rules, const CacheAppend& op) {
  KAPITSA_TRY(rules.heads("in", op.in));
  KAPITSA_TRY(rules.cache("cache", op.cache, op.in.count, op.in.dim));
  return rules.pass_rows({op.in.buffer});
}

Status check(const Rules& rules, const Attend& op) {
  KAPITSA_TRY(rules.heads("q", op.q));
  KAPITSA_TRY(rules.heads("out", op.out));
  if (op.out.count != op.q.count)
    return wrong("q has {} heads and out {}", op.q.count, op.out.count);
  if (op.n_kv_heads < 1 || op.q.count % op.n_kv_heads != 0)
    return wrong("{} key heads do not divide {} query heads", op.n_kv_heads, op.q.count);
  const int64_t n_kv = op.n_kv_heads;
  KAPITSA_TRY(rules.cache("k_cache", op.k_cache, n_kv, op.q.dim));
  KAPITSA_TRY(rules.cache("v_cache", op.v_cache, n_kv, op.out.dim));
  KAPITSA_TRY(rules.vector("sinks", op.sinks, op.q.count, true));
  if (op.mask == Mask::block && op.block < 1) return wrong("block is {}", op.block);
  if (op.window < 0 || op.softcap < 0.0F)
    return wrong("window is {} and softcap {}", op.window, op.softcap);
  if (op.selection) {
    KAPITSA_TRY(rules.exists("selection", op.selection, DType::i32));
    if (op.selection_block < 1) return wrong("selection_block is {}", op.selection_block);
    KAPITSA_TRY(rules.pass_rows({op.selection}));
  }
  KAPITSA_TRY(rules.apart(op.out.buffer, {op.q.buffer}));
  return rules.pass_rows({op.q.buffer, op.out.buffer});
}

Status check(const Rules& rules, const SelectBlocks& op) {
  KAPITSA_TRY(rules.heads("q", op.q));
  KAPITSA_TRY(rules.state("key_cache", op.key_cache, StateKind::kv_cache, op.q.dim));
  if (op.key_norm.present)
    KAPITSA_TRY(rules.norm("key_norm", op.key_norm, {op.q.buffer, 1, op.q.dim, op.q.dim, 0}));
  KAPITSA_TRY(rules.rope("rope", op.rope, op.q.dim));
  if (op.ratio < 1 || op.budget < 1) return wrong("ratio is {} and budget {}", op.ratio, op.budget);
  KAPITSA_TRY(rules.buffer("out", op.out, op.budget + int64_t{1}, DType::i32));
  return rules.pass_rows({op.q.buffer, op.out});
}

Status check(const Rules& rules, const CausalConv& op) {
  KAPITSA_TRY(rules.unary(op.in, op.out));
  KAPITSA_TRY(rules.apart(op.out, {op.in}));
  if (op.taps < 2 || op.dilation < 1)
    return wrong("{} taps with dilation {}", op.taps, op.dilation);
  const int64_t width = rules.width(op.in);
  KAPITSA_TRY(rules.matrix("weight", op.weight, width, op.taps));
  KAPITSA_TRY(rules.vector("bias", op.bias, width, true));
  KAPITSA_TRY(rules.memory(op.memory, int64_t{op.taps - 1} * op.dilation * width, width));
  return rules.pass_rows({op.in});
}

Status check(const Rules& rules, const DeltaRule& op) {
  KAPITSA_TRY(rules.heads("q", op.q));
  KAPITSA_TRY(rules.heads("k", op.k));
  KAPITSA_TRY(rules.heads("v", op.v));
  KAPITSA_TRY(rules.heads("out", op.out));
  KAPITSA_TRY(same_shape(op.q, op.k));
  KAPITSA_TRY(same_shape(op.v, op.out));
  if (op.v.count % op.k.count != 0)
    return wrong("{} key heads do not divide {} value heads", op.k.count, op.v.count);
  const int64_t n_v = op.v.count;
  KAPITSA_TRY(rules.buffer("decay", op.decay, n_v));
  KAPITSA_TRY(rules.buffer("beta", op.beta, n_v));
  KAPITSA_TRY(rules.memory(op.memory, n_v * op.v.dim * op.k.dim,
                           int64_t{op.k.count} * op.k.dim + n_v * (op.v.dim + 1)));
  const BufferId out = op.out.buffer;
  KAPITSA_TRY(rules.apart(out, {op.q.buffer, op.k.buffer, op.v.buffer, op.decay, op.beta}));
  return rules.pass_rows({op.q.buffer, op.k.buffer, op.v.buffer, op.decay, op.beta, out});
}

Status check(const Rules& rules, const SsmScan& op) {
  KAPITSA_TRY(rules.heads("x", op.x));
  KAPITSA_TRY(rules.heads("b", op.b));
  KAPITSA_TRY(rules.heads("c", op.c));
  KAPITSA_TRY(rules.heads("out", op.out));
  KAPITSA_TRY(same_shape(op.x, op.out));
  KAPITSA_TRY(same_shape(op.b, op.c));
  if (op.x.count % op.b.count != 0)
    return wrong("{} groups do not divide {} heads", op.b.count, op.x.count);
  const int64_t heads = op.x.count;
  KAPITSA_TRY(rules.buffer("dt", op.dt, heads));
  KAPITSA_TRY(rules.vector("a", op.a, heads));
  KAPITSA_TRY(rules.vector("d", op.d, heads));
  KAPITSA_TRY(rules.memory(op.memory, heads * op.x.dim * op.b.dim,
                           heads * (op.x.dim + 1) + int64_t{op.b.count} * op.b.dim));
  const BufferId out = op.out.buffer;
  KAPITSA_TRY(rules.apart(out, {op.x.buffer, op.dt, op.b.buffer, op.c.buffer}));
  return rules.pass_rows({op.x.buffer, op.dt, op.b.buffer, op.c.buffer, out});
}

Status check(const Rules& rules, const SelectExperts& op) {
  const Router& router = op.router;
  if (router.n_experts < 1 || router.top_k < 1 || router.n_groups < 1 || router.top_groups < 1 ||
      router.n_experts % router.n_groups != 0 || router.top_groups > router.n_groups)
    return wrong("{} experts in {} groups, {} of them kept", router.n_experts, router.n_groups,
                 router.top_groups);
  const int32_t kept = router.n_groups > 1 ? router.n_experts / router.n_groups * router.top_groups
                                           : router.n_experts;
  if (router.top_k > kept) return wrong("top_k is {} of {} experts", router.top_k, kept);
  KAPITSA_TRY(rules.buffer("logits", op.logits, router.n_experts));
  KAPITSA_TRY(rules.buffer("ids", op.ids, router.top_k, DType::i32));
  KAPITSA_TRY(rules.buffer("weights", op.weights, router.top_k));
  KAPITSA_TRY(rules.vector("selection_bias", router.selection_bias, router.n_experts, true));
  KAPITSA_TRY(rules.vector("expert_scale", router.expert_scale, router.n_experts, true));
  KAPITSA_TRY(rules.apart(op.weights, {op.logits}));
  return rules.same_rows({op.logits, op.ids, op.weights});
}

Status check(const Rules& rules, const ExpertLinear& op) {
  KAPITSA_TRY(rules.exists("in", op.in));
  KAPITSA_TRY(rules.exists("ids", op.ids, DType::i32));
  KAPITSA_TRY(rules.weight_exists("weight", op.weight));
  const Weight& weight = rules.weight(op.weight);
  const int64_t top_k = rules.width(op.ids);
  if (rules.width(op.in) != weight.in) KAPITSA_TRY(rules.buffer("in", op.in, top_k * weight.in));
  KAPITSA_TRY(rules.buffer("out", op.out, top_k * weight.out));
  KAPITSA_TRY(rules.apart(op.out, {op.in}));
  return rules.same_rows({op.in, op.ids, op.out});
}

Status check(const Rules& rules, const CombineExperts& op) {
  KAPITSA_TRY(rules.exists("weights", op.weights));
  KAPITSA_TRY(rules.exists("out", op.out));
  KAPITSA_TRY(rules.buffer("in", op.in, rules.width(op.weights) * rules.width(op.out)));
  KAPITSA_TRY(rules.apart(op.out, {op.in, op.weights}));
  return rules.same_rows({op.in, op.weights, op.out});
}

Status check(const Rules& rules, const NgramRows& op) {
  const auto heads = static_cast<int64_t>(op.head_vocab.size());
  if (heads < 1 || op.head_offsets.size() != op.head_vocab.size() || op.heads_per_ngram < 1)
    return wrong("{} head vocabularies, {} offsets, {} heads for each n-gram", heads,
                 op.head_offsets.size(), op.heads_per_ngram);
  const int64_t longest = 2 + (heads - 1) / op.heads_per_ngram;
  if (std::ssize(op.multipliers) < longest)
    return wrong("{} multipliers for n-grams of {} tokens", op.multipliers.size(), longest);
  if (rules.plan().n_history < std::ssize(op.multipliers) - 1)
    return wrong("it reads {} preceding tokens and the plan keeps {}", op.multipliers.size() - 1,
                 rules.plan().n_history);
  KAPITSA_TRY(rules.weight_exists("table", op.table));
  const Weight& table = rules.weight(op.table);
  const int64_t n_rows = table.experts * table.out;
  for (size_t h = 0; h < op.head_vocab.size(); ++h) {
    if (op.head_vocab[h] < 1 || op.head_offsets[h] < 0 ||
        op.head_vocab[h] > n_rows - op.head_offsets[h])
      return wrong("head {} takes rows {} to {} of a table of {}", h, op.head_offsets[h],
                   op.head_offsets[h] + op.head_vocab[h], n_rows);
  }
  KAPITSA_TRY(rules.buffer("out", op.out, heads * table.in));
  return rules.pass_rows({op.out});
}

Status check(const Rules& rules, const SoftEmbed& op) {
  KAPITSA_TRY(rules.exists("probabilities", op.probabilities));
  KAPITSA_TRY(rules.exists("out", op.out));
  KAPITSA_TRY(rules.matrix("table", op.table, rules.width(op.probabilities), rules.width(op.out)));
  KAPITSA_TRY(rules.apart(op.out, {op.probabilities}));
  return rules.same_rows({op.probabilities, op.out});
}

Status check(const Rules& rules, const GatherOutputs& op) {
  KAPITSA_TRY(rules.exists("in", op.in));
  KAPITSA_TRY(rules.buffer("out", op.out, rules.width(op.in)));
  KAPITSA_TRY(rules.pass_rows({op.in}));
  if (rules.plan().buffer(op.out).rows != RowSpace::output)
    return wrong("out ({}) has rows of the pass, expected output rows",
                 rules.plan().buffer(op.out).name);
  return {};
}

Status check(const Rules& rules, const TopLogits& op) {
  KAPITSA_TRY(rules.exists("logits", op.logits));
  KAPITSA_TRY(rules.exists("ids", op.ids, DType::i32));
  const int64_t k = rules.width(op.ids);
  if (k > rules.width(op.logits)) return wrong("{} best of {}", k, rules.width(op.logits));
  KAPITSA_TRY(rules.buffer("values", op.values, k));
  KAPITSA_TRY(rules.buffer("log_sum_exp", op.log_sum_exp, 1));
  return rules.same_rows({op.logits, op.ids, op.values, op.log_sum_exp});
}

Status check(const Rules& rules, const Sample& op) {
  KAPITSA_TRY(rules.exists("logits", op.logits));
  KAPITSA_TRY(rules.buffer("token", op.token, 1, DType::i32));
  return rules.same_rows({op.logits, op.token});
}

template <typename T>
concept Checked = requires(const Rules& rules, const T& op) { check(rules, op); };

Status check_op(const Plan& plan, const Op& op) {
  return std::visit(
      [&](const auto& concrete) -> Status {
        if constexpr (Checked<std::remove_cvref_t<decltype(concrete)>>) {
          return check(Rules(plan), concrete);
        } else {
          return wrong("it has no rules");
        }
      },
      op);
}

// Checks a step and what it expands to; `plan` takes the scratch buffers.
Status check_step(Plan& plan, const Op& op) {
  if (is_primitive(op)) {
    const Status status = check_op(plan, op);
    if (status) return {};
    return wrong("{}: {}", op_name(op), status.error().message);
  }
  try {
    const auto expansion = expand(op, plan);
    for (const Op& part : *expansion) {
      const Status status = check_step(plan, part);
      if (!status) return wrong("{}: {}", op_name(op), status.error().message);
    }
  } catch (const std::out_of_range&) {  // from the plan's tables
    return wrong("{}: an operand that it needs is absent", op_name(op));
  }
  return {};
}

Status check_grouped(const Weight& weight) {
  const int64_t group = weight.group.group;
  if (group < 1 || weight.in % group != 0 || weight.in * weight.group.bits % 32 != 0)
    return wrong("weight {}: rows of {} do not divide into groups of {}", weight.name, weight.in,
                 group);
  const int64_t n_groups = weight.experts * weight.out * (weight.in / group);
  const bool affine = weight.group.mode == GroupMode::affine;
  const int64_t expected = n_groups * (affine ? dtype_info(weight.scale_dtype).block_bytes : 1);
  if (!weight.expert_scales.empty()) {
    const auto fits = [&](std::span<const std::byte> part) {
      return std::ssize(part) == expected / weight.experts;
    };
    if (affine || !weight.scales.empty() || std::ssize(weight.expert_scales) != weight.experts ||
        !std::ranges::all_of(weight.expert_scales, fits))
      return wrong("weight {}: scales of {} experts apart, expected {} of {} bytes each",
                   weight.name, weight.expert_scales.size(), weight.experts,
                   expected / weight.experts);
    return {};
  }
  if (std::ssize(weight.scales) != expected || std::ssize(weight.biases) != (affine ? expected : 0))
    return wrong("weight {}: {} and {} bytes of scales and biases, expected {}", weight.name,
                 weight.scales.size(), weight.biases.size(), expected);
  return {};
}

Status check_weights(const Plan& plan) {
  for (const Weight& weight : plan.weights()) {
    if (weight.dtype == DType::grouped) {
      KAPITSA_TRY(check_grouped(weight));
    } else if (!dtype_bytes(weight.dtype, weight.in)) {
      return wrong("weight {}: a row of {} is not a whole number of {} blocks", weight.name,
                   weight.in, dtype_info(weight.dtype).name);
    }
    const int64_t matrix = row_bytes(weight) * weight.out;
    const int64_t expected = matrix * weight.experts;
    if (!weight.data.empty() && std::ssize(weight.data) != expected)
      return wrong("weight {}: {} bytes of data, expected {}", weight.name, weight.data.size(),
                   expected);
    if (!weight.expert_data.empty() && std::ssize(weight.expert_data) != weight.experts)
      return wrong("weight {}: {} experts apart, expected {}", weight.name,
                   weight.expert_data.size(), weight.experts);
    for (const auto part : weight.expert_data) {
      if (std::ssize(part) != matrix)
        return wrong("weight {}: an expert of {} bytes, expected {}", weight.name, part.size(),
                     matrix);
    }
    const std::ptrdiff_t n_scales = std::ssize(weight.scale);
    if (n_scales > 1 && n_scales != weight.experts)
      return wrong("weight {}: {} scales, expected one or {}", weight.name, n_scales,
                   weight.experts);
  }
  return {};
}

}  // namespace

Status validate(const Plan& plan) {
  KAPITSA_TRY(check_weights(plan));
  if (plan.routines().empty()) return wrong("the plan has no routine");
  if (plan.logits) {
    KAPITSA_TRY(Rules(plan).buffer("the plan's logits", plan.logits, plan.n_vocab));
    if (plan.buffer(plan.logits).rows != RowSpace::output)
      return wrong("the plan's logits have rows of the pass, expected output rows");
  }
  if (plan.features) KAPITSA_TRY(Rules(plan).exists("the plan's features", plan.features));
  Plan scratch = plan;
  for (const Routine& routine : plan.routines()) {
    for (const Step& step : routine.steps) {
      const Status status = check_step(scratch, step.op);
      if (!status)
        return wrong("step {} of {}: {}", step.label, routine.name, status.error().message);
    }
  }
  return {};
}

}  // namespace kapitsa::plan
