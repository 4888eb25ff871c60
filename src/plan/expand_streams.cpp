// Expansions of the ops that only some families have: residual streams, the sparse-attention
// indexer and n-gram embedding of qwen4_exp, self-conditioning of block-diffusion models.
#include "plan/expand.h"

#include <cmath>

namespace kapitsa::plan {

std::vector<Op> expand_op(const StreamMix& op, Plan& plan) {
  std::vector<Op> ops;
  const float share = 1.0F / static_cast<float>(op.streams);
  const BufferId normed = append_norm(ops, plan, op.x, op.norm, "streams", op.streams);
  const BufferId low = plan.scratch("stream_low", plan.weight(op.down).out);
  const BufferId gate = plan.scratch("stream_gate", plan.weight(op.up).out);
  ops.push_back(Linear{normed, {op.down, {}, low}});
  ops.push_back(Affine{low, low, share, 0.0F});
  ops.push_back(Activate{low, low, Activation::silu});
  ops.push_back(Linear{low, {op.up, {}, gate}});
  ops.push_back(Activate{gate, gate, Activation::sigmoid});
  ops.push_back(Mul{gate, normed, gate});
  ops.push_back(SumGroups{gate, op.out, op.streams, share});
  if (op.inject) {
    ops.push_back(Linear{normed, {op.inject, {}, op.inject_out}});
    ops.push_back(Affine{op.inject_out, op.inject_out, share, 0.0F});
    ops.push_back(Activate{op.inject_out, op.inject_out, Activation::sigmoid});
    ops.push_back(Affine{op.inject_out, op.inject_out, 2.0F, 0.0F});
  }
  return ops;
}

std::vector<Op> expand_op(const StreamAdd& op, Plan& plan) {
  const BufferId wide = plan.scratch("stream_update", plan.buffer(op.x).width);
  const auto copies = static_cast<int32_t>(plan.buffer(op.x).width / plan.buffer(op.y).width);
  return {Repeat{op.y, wide, copies}, Mul{wide, op.inject, wide}, Add{op.x, wide, op.x}};
}

std::vector<Op> expand_op(const IndexSelect& op, Plan& /*plan*/) {
  std::vector<Op> ops;
  if (op.q_norm.present) ops.push_back(RmsNorm{op.q, op.q_norm, op.q});
  if (!op.select.rope.inv_freq.empty()) ops.push_back(ApplyRope{op.q, op.select.rope});
  ops.push_back(CacheAppend{op.k, op.select.key_cache});
  ops.push_back(op.select);
  return ops;
}

std::vector<Op> expand_op(const NgramEmbed& op, Plan& plan) {
  std::vector<Op> ops;
  const int64_t wide = plan.buffer(op.x).width;
  const int64_t hidden = wide / op.streams;
  const BufferId key = plan.scratch("ngram_key", wide);
  const BufferId value = plan.scratch("ngram_value", hidden);
  const BufferId gate = plan.scratch("ngram_gate", op.streams);
  const BufferId p = plan.scratch("ngram_p", wide);
  const BufferId mixed = plan.scratch("ngram_conv", wide);

  ops.push_back(op.rows);
  ops.push_back(Linear{op.rows.out, {op.key, {}, key}});
  ops.push_back(Linear{op.rows.out, {op.value, {}, value}});
  const Heads key_heads = plan.heads(key, op.streams);
  ops.push_back(RmsNorm{key_heads, op.key_norm, key_heads});
  const BufferId query = append_norm(ops, plan, op.x, op.query_norm, "ngram_query", op.streams);
  ops.push_back(
      GroupDot{key, query, gate, op.streams, 1.0F / std::sqrt(static_cast<float>(hidden))});
  ops.push_back(Activate{gate, gate, Activation::signed_sqrt});
  ops.push_back(Activate{gate, gate, Activation::sigmoid});
  ops.push_back(Repeat{value, p, op.streams});
  ops.push_back(Mul{p, gate, p});

  const BufferId normed = append_norm(ops, plan, p, op.conv_norm, "ngram_normed", op.streams);
  ops.push_back(CausalConv{.in = normed,
                           .out = mixed,
                           .weight = op.conv,
                           .bias = {},
                           .taps = op.taps,
                           .dilation = op.dilation,
                           .activation = Activation::silu,
                           .memory = op.memory});
  ops.push_back(Add{p, mixed, p});
  ops.push_back(Add{op.x, p, op.x});
  return ops;
}

std::vector<Op> expand_op(const SelfCondition& op, Plan& plan) {
  std::vector<Op> ops;
  const int64_t hidden = plan.buffer(op.x).width;
  const int64_t width = plan.weight(op.up).out;
  const BufferId soft = plan.scratch("soft", hidden);
  const BufferId gate = plan.scratch("mlp_gate", width);
  const BufferId up = plan.scratch("mlp_up", width);
  const BufferId y = plan.scratch("sublayer", hidden);
  ops.push_back(SoftEmbed{op.probabilities, op.table, op.embed_scale, soft});
  if (op.soft_norm.present) {
    ops.push_back(RmsNorm{plan.heads(soft), op.soft_norm, plan.heads(soft)});
  }
  ops.push_back(Linear{soft, {op.gate, {}, gate}});
  ops.push_back(Linear{soft, {op.up, {}, up}});
  ops.push_back(Linear{append_gated(ops, gate, up, Activation::gelu_tanh), {op.down, {}, y}});
  ops.push_back(Add{op.x, y, op.x});
  if (op.out_norm.present) {
    ops.push_back(RmsNorm{plan.heads(op.x), op.out_norm, plan.heads(op.x)});
  }
  return ops;
}

}  // namespace kapitsa::plan
