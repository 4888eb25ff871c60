// Expansions of the mixture-of-experts ops. Sums run over slots in rank order, then the shared
// expert, then the residual: the order that invariant 1 fixes.
#include "plan/expand.h"

namespace kapitsa::plan {
namespace {

void append_shared_up(std::vector<Op>& ops, Plan& plan, BufferId normed, const SharedExpert& shared,
                      Activation activation) {
  const int64_t width = plan.weight(shared.up).out;
  BufferId gate;
  if (shared.gate) {
    gate = plan.scratch("shared_gate", width);
    ops.push_back(Linear{normed, {shared.gate, {}, gate}});
  }
  ops.push_back(Linear{normed, {shared.up, {}, shared.inner}});
  const BufferId inner = append_gated(ops, gate, shared.inner, activation);
  if (inner != shared.inner) ops.push_back(Copy{plan.heads(inner), plan.heads(shared.inner)});
  if (shared.mix) ops.push_back(Linear{normed, {shared.mix, {}, shared.mix_logit}});
}

}  // namespace

std::vector<Op> expand_op(const Route& op, Plan& plan) {
  std::vector<Op> ops;
  const BufferId normed = append_norm(ops, plan, op.x, op.norm, "normed");
  const BufferId logits = plan.scratch("router", op.router.n_experts);
  ops.push_back(Linear{normed, {op.weight, op.bias, logits}});
  ops.push_back(SelectExperts{logits, op.router, op.ids, op.weights});
  return ops;
}

std::vector<Op> expand_op(const ExpertsUp& op, Plan& plan) {
  std::vector<Op> ops;
  const BufferId normed = append_norm(ops, plan, op.x, op.norm, "normed");
  BufferId gate;
  if (op.gate) {
    gate = plan.scratch("experts_gate", plan.buffer(op.inner).width);
    ops.push_back(ExpertLinear{normed, op.gate, op.ids, gate});
  }
  ops.push_back(ExpertLinear{normed, op.up, op.ids, op.inner});
  const BufferId inner = append_gated(ops, gate, op.inner, op.activation);
  if (inner != op.inner) ops.push_back(Copy{plan.heads(inner), plan.heads(op.inner)});
  if (op.shared.up) append_shared_up(ops, plan, normed, op.shared, op.activation);
  return ops;
}

std::vector<Op> expand_op(const ExpertsDown& op, Plan& plan) {
  const int64_t hidden = plan.weight(op.down).out;
  const int64_t top_k = plan.buffer(op.ids).width;
  const BufferId slots = plan.scratch("experts_out", top_k * hidden);
  const BufferId y = plan.scratch("sublayer", hidden);
  std::vector<Op> ops = {ExpertLinear{op.inner, op.down, op.ids, slots},
                         CombineExperts{slots, op.weights, y}};
  if (op.shared.up) {
    const BufferId shared_y = plan.scratch("shared_out", hidden);
    ops.push_back(Linear{op.shared.inner, {op.shared.down, {}, shared_y}});
    if (op.shared.mix) {
      ops.push_back(Activate{op.shared.mix_logit, op.shared.mix_logit, Activation::sigmoid});
      ops.push_back(Mul{shared_y, op.shared.mix_logit, shared_y});
    }
    ops.push_back(Add{y, shared_y, y});
  }
  append_residual(ops, plan, y, op.residual);
  return ops;
}

}  // namespace kapitsa::plan
