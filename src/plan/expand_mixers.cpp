// Expansions of the recurrent token mixers: Gated DeltaNet and Mamba-2.
#include "plan/expand.h"

#include <cmath>

namespace kapitsa::plan {

std::vector<Op> expand_op(const DeltaMix& op, Plan& plan) {
  std::vector<Op> ops;
  const int32_t key_dim = op.n_k * op.dk;
  const BufferId mixed = plan.scratch("conv", plan.buffer(op.qkv).width);
  ops.push_back(CausalConv{.in = op.qkv,
                           .out = mixed,
                           .weight = op.conv,
                           .bias = {},
                           .taps = op.taps,
                           .dilation = 1,
                           .activation = Activation::silu,
                           .memory = op.conv_memory});
  const Heads q = {mixed, op.n_k, op.dk, op.dk, 0};
  const Heads k = {mixed, op.n_k, op.dk, op.dk, key_dim};
  const Heads v = {mixed, op.n_v, op.dv, op.dv, 2 * key_dim};
  ops.push_back(L2Norm{q, op.l2_eps, 1.0F / std::sqrt(static_cast<float>(op.dk))});
  ops.push_back(L2Norm{k, op.l2_eps, 1.0F});

  const BufferId beta = plan.scratch("beta", op.n_v);
  const BufferId decay = plan.scratch("decay", op.n_v);
  ops.push_back(Activate{op.b, beta, Activation::sigmoid});
  ops.push_back(SoftplusBias{op.a, decay, op.dt_bias});
  ops.push_back(ScaleColumns{decay, decay, op.a_coefficient});
  const Heads out = plan.heads(op.out, op.n_v);
  ops.push_back(DeltaRule{q, k, v, decay, beta, op.head_map, op.delta_memory, out});
  ops.push_back(RmsNorm{out, op.out_norm, out});

  const BufferId gate = plan.scratch("gate", plan.buffer(op.z).width);
  ops.push_back(Activate{op.z, gate, op.gate});
  ops.push_back(Mul{op.out, gate, op.out});
  return ops;
}

std::vector<Op> expand_op(const MambaMix& op, Plan& plan) {
  std::vector<Op> ops;
  const int32_t inner = op.heads * op.p;
  const int32_t group_width = op.groups * op.n;
  const int32_t conv_width = inner + 2 * group_width;
  const BufferId z = plan.scratch("gate", inner);
  const BufferId xbc = plan.scratch("xbc", conv_width);
  const BufferId dt = plan.scratch("dt", op.heads);
  ops.push_back(Copy{{op.in, 1, inner, inner, 0}, plan.heads(z)});
  ops.push_back(Copy{{op.in, 1, conv_width, conv_width, inner}, plan.heads(xbc)});
  ops.push_back(Copy{{op.in, 1, op.heads, op.heads, inner + conv_width}, plan.heads(dt)});

  const BufferId mixed = plan.scratch("conv", conv_width);
  ops.push_back(CausalConv{.in = xbc,
                           .out = mixed,
                           .weight = op.conv,
                           .bias = op.conv_bias,
                           .taps = op.taps,
                           .dilation = 1,
                           .activation = Activation::silu,
                           .memory = op.conv_memory});
  ops.push_back(SoftplusBias{dt, dt, op.dt_bias, op.dt_low, op.dt_high});
  ops.push_back(SsmScan{.x = {mixed, op.heads, op.p, op.p, 0},
                        .dt = dt,
                        .b = {mixed, op.groups, op.n, op.n, inner},
                        .c = {mixed, op.groups, op.n, op.n, inner + group_width},
                        .a = op.a,
                        .d = op.d,
                        .memory = op.ssm_memory,
                        .out = plan.heads(op.out, op.heads)});
  ops.push_back(Activate{z, z, Activation::silu});
  ops.push_back(Mul{op.out, z, op.out});
  const Heads grouped = plan.heads(op.out, op.groups);
  ops.push_back(RmsNorm{grouped, op.out_norm, grouped});
  return ops;
}

}  // namespace kapitsa::plan
