// Expansions of the ops that every transformer has: embedding, projections, attention, MLP, head.
#include "plan/expand.h"

namespace kapitsa::plan {

BufferId append_norm(std::vector<Op>& ops, Plan& plan, BufferId x, const Norm& norm,
                     const std::string& name, int32_t count) {
  if (!norm.present) return x;
  const Buffer source = plan.buffer(x);
  const BufferId out = plan.scratch(name, source.width, source.dtype, source.rows);
  ops.push_back(RmsNorm{plan.heads(x, count), norm, plan.heads(out, count)});
  return out;
}

void append_residual(std::vector<Op>& ops, Plan& plan, BufferId y, const Residual& residual) {
  if (residual.post_norm.present) {
    ops.push_back(RmsNorm{plan.heads(y), residual.post_norm, plan.heads(y)});
  }
  if (residual.scale != 1.0F) ops.push_back(Affine{y, y, residual.scale, 0.0F});
  if (residual.accumulate) {
    ops.push_back(Add{residual.out, y, residual.out});
  } else {
    ops.push_back(Copy{plan.heads(y), plan.heads(residual.out)});
  }
}

BufferId append_gated(std::vector<Op>& ops, BufferId gate, BufferId up, Activation activation) {
  if (!gate) {
    ops.push_back(Activate{up, up, activation});
    return up;
  }
  ops.push_back(Activate{gate, gate, activation});
  ops.push_back(Mul{gate, up, gate});
  return gate;
}

std::vector<Op> expand_op(const Embed& op, Plan& plan) {
  std::vector<Op> ops;
  const int64_t hidden = plan.weight(op.table).in;
  const BufferId row = op.copies == 1 ? op.out : plan.scratch("embed", hidden);
  ops.push_back(EmbedRows{op.table, row});
  if (op.scale != 1.0F) ops.push_back(Affine{row, row, op.scale, 0.0F});
  if (op.norm.present) ops.push_back(RmsNorm{plan.heads(row), op.norm, plan.heads(row)});
  if (op.copies > 1) ops.push_back(Repeat{row, op.out, op.copies});
  return ops;
}

std::vector<Op> expand_op(const NormLinear& op, Plan& plan) {
  std::vector<Op> ops;
  const BufferId normed = append_norm(ops, plan, op.x, op.norm, "normed");
  for (const Projection& projection : op.projections)
    ops.push_back(Linear{normed, projection});
  return ops;
}

std::vector<Op> expand_op(const LinearAdd& op, Plan& plan) {
  const BufferId y = plan.scratch("sublayer", plan.weight(op.weight).out);
  std::vector<Op> ops = {Linear{op.in, {op.weight, op.bias, y}}};
  append_residual(ops, plan, y, op.residual);
  return ops;
}

std::vector<Op> expand_op(const AttentionPrepare& op, Plan& plan) {
  std::vector<Op> ops;
  const auto normalise = [&](const Heads& x, const Norm& norm) {
    if (norm.present) ops.push_back(RmsNorm{x, norm, x});
  };
  normalise(op.q, op.q_norm);
  normalise(op.k, op.k_norm);
  normalise(op.v, op.v_norm);
  // q may share its buffer with k, v or a gate, which must not be scaled.
  if (op.q_scale != 1.0F) {
    const BufferId dense = plan.scratch("q_scaled", int64_t{op.q.count} * op.q.dim);
    const Heads scaled = plan.heads(dense, op.q.count);
    ops.push_back(Copy{op.q, scaled});
    ops.push_back(Affine{dense, dense, op.q_scale, 0.0F});
    ops.push_back(Copy{scaled, op.q});
  }
  if (!op.rope.inv_freq.empty()) {
    ops.push_back(ApplyRope{op.q, op.rope});
    ops.push_back(ApplyRope{op.k, op.rope});
  }
  ops.push_back(CacheAppend{op.k, op.k_cache});
  ops.push_back(CacheAppend{op.v, op.v_cache});
  return ops;
}

std::vector<Op> expand_op(const Attention& op, Plan& plan) {
  std::vector<Op> ops = {op.attend};
  if (!op.gate.buffer) return ops;
  const BufferId gate = plan.scratch("gate", int64_t{op.gate.count} * op.gate.dim);
  ops.push_back(Copy{op.gate, plan.heads(gate, op.gate.count)});
  ops.push_back(Activate{gate, gate, op.gate_activation});
  ops.push_back(Mul{op.attend.out.buffer, gate, op.attend.out.buffer});
  return ops;
}

std::vector<Op> expand_op(const Mlp& op, Plan& plan) {
  std::vector<Op> ops;
  const int64_t width = plan.weight(op.up).out;
  const BufferId normed = append_norm(ops, plan, op.x, op.norm, "normed");
  const BufferId up = plan.scratch("mlp_up", width);
  BufferId gate;
  if (op.gate) {
    gate = plan.scratch("mlp_gate", width);
    ops.push_back(Linear{normed, {op.gate, {}, gate}});
  }
  ops.push_back(Linear{normed, {op.up, {}, up}});
  const BufferId inner = append_gated(ops, gate, up, op.activation);
  const BufferId y = plan.scratch("sublayer", plan.weight(op.down).out);
  ops.push_back(Linear{inner, {op.down, {}, y}});
  append_residual(ops, plan, y, op.residual);
  return ops;
}

std::vector<Op> expand_op(const Head& op, Plan& plan) {
  std::vector<Op> ops;
  const int64_t hidden = plan.buffer(op.x).width;
  const BufferId row = plan.scratch("head_in", hidden, DType::f32, RowSpace::output);
  ops.push_back(GatherOutputs{op.x, row});
  if (op.norm.present) ops.push_back(RmsNorm{plan.heads(row), op.norm, plan.heads(row)});
  ops.push_back(Linear{row, {op.weight, {}, op.logits}});
  if (op.scale != 1.0F) ops.push_back(Affine{op.logits, op.logits, op.scale, 0.0F});
  if (op.softcap > 0.0F) ops.push_back(Softcap{op.logits, op.logits, op.softcap});
  if (op.top_ids) ops.push_back(TopLogits{op.logits, op.top_ids, op.top_values, op.log_sum_exp});
  return ops;
}

std::vector<Op> expand_op(const MtpJoin& op, Plan& plan) {
  std::vector<Op> ops;
  const BufferId e = append_norm(ops, plan, op.embedding, op.embedding_norm, "mtp_embedding");
  const BufferId h = append_norm(ops, plan, op.hidden, op.hidden_norm, "mtp_hidden", op.streams);
  const auto n = static_cast<int32_t>(plan.buffer(e).width);
  const BufferId joined = plan.scratch("mtp_joined", int64_t{2} * n);
  ops.push_back(Copy{plan.heads(e), {joined, 1, n, n, 0}});
  const BufferId one = op.streams > 1 ? plan.scratch("mtp_stream", n) : op.out;
  for (int32_t s = 0; s < op.streams; ++s) {
    ops.push_back(Copy{{h, 1, n, n, s * n}, {joined, 1, n, n, n}});
    ops.push_back(Linear{joined, {op.weight, {}, one}});
    if (op.streams > 1) ops.push_back(Copy{plan.heads(one), {op.out, 1, n, n, s * n}});
  }
  return ops;
}

}  // namespace kapitsa::plan
