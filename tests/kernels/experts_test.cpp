// Cases of the mixture-of-experts ops.
#include "kernels/kernel_test.h"

#include <fmt/format.h>

namespace kapitsa::test {
namespace {

using plan::BufferId;
using plan::Router;
using plan::RouterScore;

constexpr double kFast = 0.08;  // 8-bit activations, two projections

// The router variants of the models that exist (n_experts and top_k are set by the case).
std::vector<Router> routers(PlanBuilder& b, int32_t n_experts, int32_t top_k) {
  Router all = {.score = RouterScore::softmax, .renormalise = true};
  Router selected = {.score = RouterScore::softmax_selected};
  selected.expert_scale = b.vector(n_experts);
  Router biased = {.score = RouterScore::sigmoid, .renormalise = true, .scale = 2.5F};
  biased.selection_bias = b.vector(n_experts, -0.5F, 0.5F);
  std::vector<Router> result = {all, selected, biased};
  if (n_experts % 4 == 0 && top_k <= n_experts / 2) {
    biased.n_groups = 4;
    biased.top_groups = 2;
    result.push_back(biased);
  }
  for (Router& router : result) {
    router.n_experts = n_experts;
    router.top_k = top_k;
  }
  return result;
}

const std::vector<std::pair<int32_t, int32_t>> kChoices = {{1, 1},  {7, 3},  {8, 2},
                                                           {64, 6}, {65, 8}, {256, 8}};

KernelGroup select_experts() {
  KernelGroup group = {"SelectExperts", {}};
  for (const auto& [n_experts, top_k] : kChoices) {
    group.cases.push_back({.name = fmt::format("{} of {}", top_k, n_experts),
                           .build =
                               [n = n_experts, k = top_k](PlanBuilder& b) {
                                 for (const Router& router : routers(b, n, k))
                                   b.op(plan::SelectExperts{b.input(n, -4.0F, 4.0F), router,
                                                            b.output(k, DType::i32), b.output(k)});
                               },
                           .prefill_tokens = n_experts == 64 ? 67 : 5,
                           .depth = static_cast<double>(n_experts)});
  }
  return group;
}

KernelGroup route() {
  KernelGroup group = {"Route", {}};
  for (const auto& [n_experts, top_k] : kChoices) {
    group.cases.push_back({.name = fmt::format("route {} of {}", top_k, n_experts),
                           .build =
                               [n = n_experts, k = top_k](PlanBuilder& b) {
                                 const BufferId x = b.input(64);
                                 for (const Router& router : routers(b, n, k))
                                   b.op(plan::Route{x,
                                                    {true, b.vector(64), 1e-6F},
                                                    b.matrix(n, 64),
                                                    b.vector(n, -0.1F, 0.1F),
                                                    router,
                                                    b.output(k, DType::i32),
                                                    b.output(k)});
                               },
                           .depth = 4096});
  }
  return group;
}

// Ids and weights of a random choice, not under test.
struct Choice {
  BufferId ids, weights;
};
Choice choose(PlanBuilder& b, int32_t n_experts, int32_t top_k) {
  const Choice choice = {b.buffer(top_k, DType::i32), b.buffer(top_k)};
  Router router = {.score = RouterScore::softmax, .renormalise = true};
  router.n_experts = n_experts;
  router.top_k = top_k;
  b.plan.add(
      plan::SelectExperts{b.input(n_experts, -4.0F, 4.0F), router, choice.ids, choice.weights},
      "choose");
  return choice;
}

struct ExpertShape {
  int32_t n_experts, top_k, hidden, width;
  DType type;
  int32_t prefill = 5;
};
const std::vector<ExpertShape> kShapes = {
    {1, 1, 1, 1, DType::f32},         {5, 2, 7, 13, DType::f32},
    {8, 2, 64, 65, DType::bf16, 67},  {8, 3, 256, 32, DType::q4_0},
    {16, 4, 256, 256, DType::q4_k},   {16, 4, 256, 256, DType::q6_k},
    {8, 2, 64, 64, DType::mxfp4, 67}, {4, 2, 128, 64, DType::nvfp4},
    {4, 2, 96, 160, DType::q8_0},
};

KernelGroup over_shapes(const char* op,
                        const std::function<void(PlanBuilder&, const ExpertShape&)>& build) {
  KernelGroup group = {op, {}};
  for (const ExpertShape& s : kShapes) {
    group.cases.push_back({.name = fmt::format("{} {} of {} {}x{} {}", op, s.top_k, s.n_experts,
                                               s.width, s.hidden, dtype_info(s.type).name),
                           .build = [=](PlanBuilder& b) { build(b, s); },
                           .prefill_tokens = s.prefill,
                           .depth = 8.0 * (s.hidden + s.width),
                           .fast_tolerance = kFast});
  }
  return group;
}

// A row of the down projection is a whole number of blocks only where the width is.
DType down_type(const ExpertShape& s) {
  return s.width % dtype_info(s.type).block_elements == 0 ? s.type : DType::f32;
}

plan::SharedExpert shared_expert(PlanBuilder& b, const ExpertShape& s) {
  plan::SharedExpert shared;
  shared.gate = b.matrix(s.width, s.hidden, s.type);
  shared.up = b.matrix(s.width, s.hidden, s.type);
  shared.down = b.matrix(s.hidden, s.width, down_type(s));
  shared.mix = b.matrix(1, s.hidden);
  return shared;
}

void build_up(PlanBuilder& b, const ExpertShape& s) {
  const Choice choice = choose(b, s.n_experts, s.top_k);
  const auto up = [&](bool gated, plan::Activation activation, const plan::SharedExpert& shared) {
    plan::ExpertsUp op;
    op.x = b.input(s.hidden);
    op.norm = {true, b.vector(s.hidden), 1e-6F};
    if (gated) op.gate = b.matrix(s.width, s.hidden, s.type, s.n_experts);
    op.up = b.matrix(s.width, s.hidden, s.type, s.n_experts);
    op.activation = activation;
    op.ids = choice.ids;
    op.inner = b.output(int64_t{s.top_k} * s.width);
    op.shared = shared;
    b.op(op);
  };
  plan::SharedExpert shared = shared_expert(b, s);
  shared.inner = b.output(s.width);
  shared.mix_logit = b.output(1);
  up(true, plan::Activation::silu, shared);
  up(false, plan::Activation::relu_squared, {});
}

void build_down(PlanBuilder& b, const ExpertShape& s) {
  const Choice choice = choose(b, s.n_experts, s.top_k);
  plan::SharedExpert shared = shared_expert(b, s);
  shared.inner = b.input(s.width);
  shared.mix_logit = b.input(1, -3.0F, 3.0F);
  for (const bool with_shared : {true, false}) {
    b.op(plan::ExpertsDown{b.input(int64_t{s.top_k} * s.width),
                           b.matrix(s.hidden, s.width, down_type(s), s.n_experts),
                           choice.ids,
                           choice.weights,
                           with_shared ? shared : plan::SharedExpert{},
                           {b.readable_input(s.hidden), true, {}, with_shared ? 1.0F : 0.5F}});
  }
}

void build_linear(PlanBuilder& b, const ExpertShape& s, plan::WeightId weight) {
  const Choice choice = choose(b, s.n_experts, s.top_k);
  const int64_t out = int64_t{s.top_k} * s.width;
  b.op(plan::ExpertLinear{b.input(s.hidden), weight, choice.ids, b.output(out)});
  b.op(plan::ExpertLinear{b.input(int64_t{s.top_k} * s.hidden), weight, choice.ids, b.output(out)});
}

KernelGroup expert_linear() {
  KernelGroup group = over_shapes("ExpertLinear", [](PlanBuilder& b, const ExpertShape& s) {
    build_linear(b, s, b.matrix(s.width, s.hidden, s.type, s.n_experts));
  });
  KernelGroup apart = over_shapes("ExpertLinear", [](PlanBuilder& b, const ExpertShape& s) {
    build_linear(b, s, b.apart_and_scaled(s.width, s.hidden, s.type, s.n_experts));
  });
  for (KernelCase& one : apart.cases) {
    one.name += " apart";
    group.cases.push_back(std::move(one));
  }
  const ExpertShape shape = {8, 2, 128, 33, DType::grouped};
  for (const GroupedType& type : grouped_types()) {
    group.cases.push_back({.name = "experts " + to_string(type),
                           .build =
                               [=](PlanBuilder& b) {
                                 build_linear(b, shape,
                                              b.grouped(shape.width, shape.hidden, type.group,
                                                        type.scales, shape.n_experts));
                               },
                           .depth = 128,
                           .fast_tolerance = kFast});
  }
  group.cases.push_back(
      {.name = "experts nvfp4 apart",
       .build =
           [=](PlanBuilder& b) {
             build_linear(b, shape, b.nvfp4_apart(shape.width, shape.hidden, shape.n_experts));
           },
       .depth = 128,
       .fast_tolerance = kFast});
  return group;
}

std::vector<KernelGroup> groups() {
  return {select_experts(),
          route(),
          expert_linear(),
          over_shapes("CombineExperts",
                      [](PlanBuilder& b, const ExpertShape& s) {
                        const Choice choice = choose(b, s.n_experts, s.top_k);
                        b.op(plan::CombineExperts{b.input(int64_t{s.top_k} * s.hidden),
                                                  choice.weights, b.output(s.hidden)});
                      }),
          over_shapes("ExpertsUp", build_up),
          over_shapes("ExpertsDown", build_down)};
}

INSTANTIATE_TEST_SUITE_P(Experts, KernelTest, kernel_params(groups()), kernel_name);

}  // namespace
}  // namespace kapitsa::test
