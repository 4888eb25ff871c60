// Lowering and expansion of Plans.
#include "plan/expand.h"

#include <gtest/gtest.h>

namespace kapitsa::plan {
namespace {

// A plan with one fused MLP over weights without data.
struct Fixture {
  Plan plan;
  BufferId x;
  Mlp mlp;
  Fixture() {
    x = plan.add_buffer({.name = "x", .width = 8});
    mlp.x = x;
    mlp.norm = {true, plan.add_weight({"norm", DType::f32, 1, 1, 8, {}}), 1e-6F};
    mlp.gate = plan.add_weight({"gate", DType::f32, 1, 12, 8, {}});
    mlp.up = plan.add_weight({"up", DType::f32, 1, 12, 8, {}});
    mlp.down = plan.add_weight({"down", DType::f32, 1, 8, 12, {}});
    mlp.residual.out = x;
    plan.begin_routine("trunk");
    plan.add(mlp, "0.mlp");
  }
};

std::vector<std::string> names(const Plan& plan) {
  std::vector<std::string> result;
  for (const Step& step : plan.routines().at(0).steps)
    result.emplace_back(op_name(step.op));
  return result;
}

bool primitives_only(const Plan& /*plan*/, const Op& op) {
  return is_primitive(op);
}

TEST(Lower, ReplacesAFusedOpByItsExpansionInOrder) {
  const Fixture fixture;
  const auto lowered = lower(fixture.plan, primitives_only);
  ASSERT_TRUE(lowered);
  EXPECT_EQ(names(*lowered), (std::vector<std::string>{"RmsNorm", "Linear", "Linear", "Activate",
                                                       "Mul", "Linear", "Add"}));
  for (const Step& step : lowered->routines()[0].steps)
    EXPECT_EQ(step.label, "0.mlp");
  EXPECT_EQ(names(fixture.plan), std::vector<std::string>{"Mlp"});
}

TEST(Lower, KeepsWhatTheBackendSupports) {
  const Fixture fixture;
  const auto lowered = lower(fixture.plan, [](const Plan&, const Op&) { return true; });
  ASSERT_TRUE(lowered);
  EXPECT_EQ(names(*lowered), std::vector<std::string>{"Mlp"});
}

TEST(Lower, NamesThePrimitiveAndTheStepThatAreMissing) {
  const Fixture fixture;
  const auto lowered = lower(fixture.plan, [](const Plan&, const Op& op) {
    return is_primitive(op) && !std::holds_alternative<Mul>(op);
  });
  ASSERT_FALSE(lowered);
  EXPECT_EQ(lowered.error().code, ErrorCode::unsupported);
  EXPECT_NE(lowered.error().message.find("'Mul'"), std::string::npos);
  EXPECT_NE(lowered.error().message.find("0.mlp"), std::string::npos);
}

TEST(Expand, SharesScratchBuffersBetweenSteps) {
  Fixture fixture;
  fixture.plan.add(fixture.mlp, "1.mlp");
  const auto lowered = lower(fixture.plan, primitives_only);
  ASSERT_TRUE(lowered);
  EXPECT_EQ(lowered->routines()[0].steps.size(), 14U);
  EXPECT_EQ(lowered->buffers().size(), 5U);  // x, normed, up, gate, sublayer
}

TEST(Expand, HasNothingForAPrimitive) {
  Fixture fixture;
  EXPECT_FALSE(expand(Add{}, fixture.plan));
  EXPECT_TRUE(is_primitive(Add{}));
  EXPECT_TRUE(is_primitive(Sample{}));
  EXPECT_FALSE(is_primitive(Mlp{}));
}

TEST(Expand, ScalesQueriesAndNothingBesideThem) {
  Plan plan;
  const BufferId qkv = plan.add_buffer({.name = "qkv", .width = 12});
  AttentionPrepare op;
  op.q = {qkv, 2, 4, 4, 0};
  op.k = {qkv, 1, 2, 2, 8};
  op.v = {qkv, 1, 2, 2, 10};
  op.q_scale = 0.5F;
  op.k_cache = plan.add_state({"k", StateKind::kv_cache, DType::f32, 2});
  op.v_cache = plan.add_state({"v", StateKind::kv_cache, DType::f32, 2});
  const auto ops = expand(op, plan);
  ASSERT_TRUE(ops);
  for (const Op& part : *ops) {
    if (const auto* affine = std::get_if<Affine>(&part)) {
      EXPECT_NE(affine->in, qkv);
      EXPECT_EQ(plan.buffer(affine->in).width, 8);
    }
  }
}

TEST(OpName, FollowsTheVariant) {
  EXPECT_STREQ(op_name(Embed{}), "Embed");
  EXPECT_STREQ(op_name(Head{}), "Head");
  EXPECT_STREQ(op_name(EmbedRows{}), "EmbedRows");
  EXPECT_STREQ(op_name(SelectBlocks{}), "SelectBlocks");
  EXPECT_STREQ(op_name(NgramRows{}), "NgramRows");
  EXPECT_STREQ(op_name(Sample{}), "Sample");
}

}  // namespace
}  // namespace kapitsa::plan
