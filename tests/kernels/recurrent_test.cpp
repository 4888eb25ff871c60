// Cases of the layers with a state per sequence: convolution, gated delta rule, Mamba-2.
#include "kernels/kernel_test.h"

#include <fmt/format.h>

namespace kapitsa::test {
namespace {

using plan::BufferId;
using plan::Heads;

constexpr double kSteps = 140;  // rows that build on each other in the longest case

KernelGroup conv() {
  KernelGroup group = {"CausalConv", {}};
  for (const int32_t width : {1, 7, 64, 65, 257}) {
    for (const auto& [taps, dilation] : {std::pair{2, 1}, std::pair{4, 1}, std::pair{4, 3}}) {
      for (const int32_t prefill : {1, 70}) {
        group.cases.push_back(
            {.name = fmt::format("{} taps {} dilation {} after {}", width, taps, dilation, prefill),
             .build =
                 [=](PlanBuilder& b) {
                   const bool bias = taps == 4;
                   b.op(plan::CausalConv{
                       .in = b.input(width),
                       .out = b.output(width),
                       .weight = b.matrix(width, taps),
                       .bias = bias ? b.vector(width) : plan::WeightId{},
                       .taps = taps,
                       .dilation = dilation,
                       .activation = bias ? plan::Activation::silu : plan::Activation::identity,
                       .memory = b.memory(int64_t{taps - 1} * dilation * width, width)});
                 },
             .prefill_tokens = prefill,
             .depth = 8});
      }
    }
  }
  return group;
}

struct DeltaShape {
  int32_t n_k, n_v, dk, dv;
  plan::HeadMap map = plan::HeadMap::grouped;
  int32_t prefill = 70;
  float least_decay = -0.5F;  // logarithm
};
const std::vector<DeltaShape> kDeltaShapes = {
    {1, 1, 1, 1},
    {1, 2, 7, 5},
    {2, 4, 16, 16},
    {2, 4, 16, 16, plan::HeadMap::tiled, 131},
    {2, 6, 64, 32, plan::HeadMap::tiled},
    {1, 2, 128, 128, plan::HeadMap::grouped, 65},
    {2, 2, 31, 33, plan::HeadMap::grouped, 63},
    {1, 3, 24, 17, plan::HeadMap::grouped, 200},
    {2, 4, 16, 16, plan::HeadMap::tiled, 130, -60.0F},
};

std::string name_of(const DeltaShape& s) {
  return fmt::format("{}x{} keys {}x{} values map {} after {}", s.n_k, s.dk, s.n_v, s.dv,
                     static_cast<int>(s.map), s.prefill);
}

plan::Recurrent delta_memory(PlanBuilder& b, const DeltaShape& s) {
  return b.memory(int64_t{s.n_v} * s.dv * s.dk,
                  int64_t{s.n_k} * s.dk + int64_t{s.n_v} * (s.dv + 1));
}

KernelGroup delta() {
  KernelGroup group = {"DeltaRule", {}};
  for (const DeltaShape& s : kDeltaShapes) {
    group.cases.push_back(
        {.name = name_of(s),
         .build =
             [s](PlanBuilder& b) {
               const Heads q = b.input_heads(s.n_k, s.dk, 3);
               const Heads k = b.input_heads(s.n_k, s.dk, 2);
               b.plan.add(plan::L2Norm{q, 1e-6F, 0.3F}, "q");
               b.plan.add(plan::L2Norm{k, 1e-6F, 1.0F}, "k");
               b.op(plan::DeltaRule{q, k, b.input_heads(s.n_v, s.dv, 1),
                                    b.input(s.n_v, s.least_decay, 0.0F), b.input(s.n_v, 0.0F, 1.0F),
                                    s.map, delta_memory(b, s), b.output_heads(s.n_v, s.dv, 1)});
             },
         .prefill_tokens = s.prefill,
         .depth = kSteps * s.dk});
  }
  return group;
}

KernelGroup delta_mix() {
  KernelGroup group = {"DeltaMix", {}};
  for (const DeltaShape& s : kDeltaShapes) {
    group.cases.push_back({.name = name_of(s),
                           .build =
                               [s](PlanBuilder& b) {
                                 const int32_t channels = 2 * s.n_k * s.dk + s.n_v * s.dv;
                                 b.op(
                                     plan::DeltaMix{.qkv = b.input(channels),
                                                    .z = b.input(int64_t{s.n_v} * s.dv),
                                                    .a = b.input(s.n_v),
                                                    .b = b.input(s.n_v),
                                                    .n_k = s.n_k,
                                                    .n_v = s.n_v,
                                                    .dk = s.dk,
                                                    .dv = s.dv,
                                                    .conv = b.matrix(channels, 4),
                                                    .taps = 4,
                                                    .a_coefficient = b.vector(s.n_v, -1.0F, -0.05F),
                                                    .dt_bias = b.vector(s.n_v, -1.0F, 1.0F),
                                                    .out_norm = {true, b.vector(s.dv), 1e-3F},
                                                    .gate = s.n_k == 1 ? plan::Activation::sigmoid
                                                                       : plan::Activation::silu,
                                                    .head_map = s.map,
                                                    .conv_memory = b.memory(3 * channels, channels),
                                                    .delta_memory = delta_memory(b, s),
                                                    .out = b.output(int64_t{s.n_v} * s.dv)});
                               },
                           .prefill_tokens = s.prefill,
                           .depth = 64 * kSteps * s.dk});
  }
  return group;
}

struct SsmShape {
  int32_t heads, p, groups, n, prefill = 70;
};
const std::vector<SsmShape> kSsmShapes = {{1, 1, 1, 1},        {4, 7, 2, 5},
                                          {8, 16, 2, 32, 131}, {4, 64, 1, 128, 65},
                                          {6, 31, 3, 33, 63},  {2, 17, 1, 24, 200}};

std::string name_of(const SsmShape& s) {
  return fmt::format("{}x{} groups {}x{} after {}", s.heads, s.p, s.groups, s.n, s.prefill);
}

plan::Recurrent ssm_memory(PlanBuilder& b, const SsmShape& s) {
  return b.memory(int64_t{s.heads} * s.p * s.n,
                  int64_t{s.heads} * (s.p + 1) + int64_t{s.groups} * s.n);
}

KernelGroup ssm() {
  KernelGroup group = {"SsmScan", {}};
  for (const SsmShape& s : kSsmShapes) {
    group.cases.push_back({.name = name_of(s),
                           .build =
                               [s](PlanBuilder& b) {
                                 b.op(plan::SsmScan{.x = b.input_heads(s.heads, s.p, 1),
                                                    .dt = b.input(s.heads, 0.01F, 1.0F),
                                                    .b = b.input_heads(s.groups, s.n, 2),
                                                    .c = b.input_heads(s.groups, s.n, 3),
                                                    .a = b.vector(s.heads, -2.0F, -0.01F),
                                                    .d = b.vector(s.heads),
                                                    .memory = ssm_memory(b, s),
                                                    .out = b.output_heads(s.heads, s.p, 1)});
                               },
                           .prefill_tokens = s.prefill,
                           .depth = kSteps * s.n});
  }
  return group;
}

KernelGroup mamba_mix() {
  KernelGroup group = {"MambaMix", {}};
  for (const SsmShape& s : kSsmShapes) {
    group.cases.push_back({.name = name_of(s),
                           .build =
                               [s](PlanBuilder& b) {
                                 const int32_t inner = s.heads * s.p;
                                 const int32_t channels = inner + 2 * s.groups * s.n;
                                 b.op(
                                     plan::MambaMix{.in = b.input(inner + channels + s.heads),
                                                    .heads = s.heads,
                                                    .p = s.p,
                                                    .groups = s.groups,
                                                    .n = s.n,
                                                    .conv = b.matrix(channels, 4),
                                                    .conv_bias = b.vector(channels, -0.5F, 0.5F),
                                                    .taps = 4,
                                                    .dt_bias = b.vector(s.heads, -2.0F, 0.0F),
                                                    .a = b.vector(s.heads, -2.0F, -0.01F),
                                                    .d = b.vector(s.heads),
                                                    .dt_low = 0.001F,
                                                    .dt_high = 1.0F,
                                                    .out_norm = {true, b.vector(inner), 1e-3F},
                                                    .conv_memory = b.memory(3 * channels, channels),
                                                    .ssm_memory = ssm_memory(b, s),
                                                    .out = b.output(inner)});
                               },
                           .prefill_tokens = s.prefill,
                           .depth = 64 * kSteps * s.n});
  }
  return group;
}

INSTANTIATE_TEST_SUITE_P(Recurrent, KernelTest,
                         kernel_params({conv(), delta(), delta_mix(), ssm(), mamba_mix()},
                                       /*recurrences=*/true),
                         kernel_name);

}  // namespace
}  // namespace kapitsa::test
