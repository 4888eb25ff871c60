// Each operand rule of validate(), broken once. That valid plans pass is tested by every kernel
// case.
#include "plan/plan.h"

#include <gtest/gtest.h>

namespace kapitsa::plan {
namespace {

struct Parts {
  Plan plan;
  BufferId x8, y8, x4, ids4, out8;
  WeightId w48, w88, v8, v4;
  StateId cache8, state, tape;

  Parts() {
    x8 = plan.add_buffer({.name = "x8", .width = 8});
    y8 = plan.add_buffer({.name = "y8", .width = 8});
    x4 = plan.add_buffer({.name = "x4", .width = 4});
    ids4 = plan.add_buffer({.name = "ids4", .dtype = DType::i32, .width = 4});
    out8 = plan.add_buffer({.name = "out8", .width = 8, .rows = RowSpace::output});
    w48 = plan.add_weight({"w48", DType::f32, 1, 4, 8, {}});
    w88 = plan.add_weight({"w88", DType::f32, 1, 8, 8, {}});
    v8 = plan.add_weight({"v8", DType::f32, 1, 1, 8, {}});
    v4 = plan.add_weight({"v4", DType::f32, 1, 1, 4, {}});
    cache8 = plan.add_state({"cache8", StateKind::kv_cache, DType::f16, 8});
    state = plan.add_state({"state", StateKind::recurrent, DType::f32, 24});
    tape = plan.add_state({"tape", StateKind::tape, DType::f32, 8});
    plan.begin_routine("trunk");
  }
  // The error of a plan with this one step; empty when it is valid.
  std::string error(const Op& op) const {
    Plan copy = plan;
    copy.add(op, "3.step");
    const Status status = validate(copy);
    return status ? "" : status.error().message;
  }
};

TEST(Validate, AcceptsMatchingOperands) {
  const Parts p;
  EXPECT_EQ(p.error(Linear{p.x8, {p.w48, p.v4, p.x4}}), "");
  EXPECT_EQ(p.error(Mul{p.x8, p.x4, p.x8}), "");
  EXPECT_EQ(p.error(GatherOutputs{p.x8, p.out8}), "");
  EXPECT_EQ(p.error(CacheAppend{{p.x8, 2, 4, 4, 0}, p.cache8}), "");
}

TEST(Validate, NamesStepRoutineOpAndOperand) {
  const Parts p;
  EXPECT_EQ(p.error(Linear{p.x4, {p.w48, {}, p.y8}}),
            "step 3.step of trunk: Linear: weight (w48) is (1, 4, 8), expected (1, 4, 4)");
}

TEST(Validate, NamesTheFusedOpAndThePartThatIsWrong) {
  const Parts p;
  NormLinear op = {p.x8, {true, p.v4, 1e-6F}, {}};
  EXPECT_EQ(p.error(op), "step 3.step of trunk: NormLinear: RmsNorm: norm (v4) is (1, 1, 4), "
                         "expected (1, 1, 8)");
  op.x = {};
  EXPECT_NE(p.error(op).find("absent"), std::string::npos);
}

TEST(Validate, RefusesEachBrokenRule) {
  const Parts p;
  const Heads too_wide = {p.x8, 2, 4, 5, 0};
  const Recurrent memory = {p.state, p.tape};
  const std::vector<std::pair<Op, const char*>> broken = {
      {Add{p.x8, p.x4, p.x8}, "b (x4) is 4 wide, expected 8"},
      {Add{p.x8, {}, p.x8}, "b is not a buffer"},
      {Add{p.x8, p.ids4, p.x8}, "b (ids4) is i32, expected f32"},
      {Add{p.x8, p.y8, p.out8}, "output rows"},
      {Linear{p.x8, {p.w88, {}, p.x8}}, "out (x8) is also an input"},
      {Linear{p.x8, {p.w88, p.v4, p.y8}}, "bias (v4)"},
      {Mul{p.x4, p.x8, p.x4}, "does not divide"},
      {RmsNorm{too_wide, {true, {}, 1e-6F}, too_wide}, "do not fit into x8"},
      {RmsNorm{{p.x8, 1, 8, 8, 0}, {}, {p.y8, 1, 8, 8, 0}}, "norm is absent"},
      {CacheAppend{{p.x4, 1, 4, 4, 0}, p.cache8}, "cache (cache8) is 8 wide, expected 4"},
      {CacheAppend{{p.x8, 1, 8, 8, 0}, p.state}, "another kind"},
      {CacheAppend{{p.out8, 1, 8, 8, 0}, p.cache8}, "needs rows of the pass"},
      {GatherOutputs{p.x8, p.y8}, "expected output rows"},
      {ApplyRope{{p.x4, 1, 4, 4, 0}, {{1.0F, 0.5F, 0.1F}, 1.0F, RopePairs::half}}, "rotates 6"},
      {CausalConv{p.x8, p.y8, p.w48, {}, 4, 1, Activation::silu, memory}, "weight (w48)"},
      {SelectExperts{p.x8, {.n_experts = 8, .top_k = 4}, p.x4, p.y8}, "ids (x4) is f32"},
      {SelectExperts{p.x8, {.n_experts = 8, .top_k = 9}, p.ids4, p.x4}, "top_k is 9 of 8"},
      {Softcap{p.x8, p.x8, 0.0F}, "cap is 0"},
      {Attend{.q = {p.x8, 3, 2, 2, 0},
              .k_cache = p.cache8,
              .v_cache = p.cache8,
              .n_kv_heads = 2,
              .out = {p.y8, 3, 2, 2, 0}},
       "2 key heads do not divide 3 query heads"},
      {NgramRows{.table = p.w88,
                 .multipliers = {3, 5},
                 .head_offsets = {0},
                 .head_vocab = {8},
                 .out = p.x8},
       "reads 1 preceding tokens and the plan keeps 0"},
  };
  for (const auto& [op, expected] : broken) {
    const std::string error = p.error(op);
    EXPECT_NE(error.find(expected), std::string::npos) << op_name(op) << ": " << error;
  }
}

TEST(Validate, ChecksWhatThePlanPromises) {
  Parts p;
  p.plan.logits = p.out8;
  p.plan.n_vocab = 9;
  EXPECT_NE(p.error(Add{p.x8, p.y8, p.x8}).find("logits (out8) is 8 wide"), std::string::npos);
  p.plan.n_vocab = 8;
  EXPECT_EQ(p.error(Add{p.x8, p.y8, p.x8}), "");
}

TEST(Validate, KeepsBlocksOfACacheInsideTheirHead) {
  Parts p;
  const BufferId x = p.plan.add_buffer({.name = "x192", .width = 192});
  const StateId cache = p.plan.add_state({"cache192", StateKind::kv_cache, DType::q8_0, 192});
  EXPECT_EQ(p.error(CacheAppend{{x, 3, 64, 64, 0}, cache}), "");
  EXPECT_EQ(
      p.error(CacheAppend{{x, 4, 48, 48, 0}, cache}),
      "step 3.step of trunk: CacheAppend: cache (cache192) is q8_0, in blocks of 32, which do "
      "not divide heads of 48");
}

TEST(Validate, ChecksTheBytesOfWeights) {
  Parts p;
  const std::vector<std::byte> bytes(31);
  p.plan.add_weight({"short", DType::f32, 1, 1, 8, bytes});
  EXPECT_EQ(p.error(Add{p.x8, p.y8, p.x8}), "weight short: 31 bytes of data, expected 32");

  Parts odd;
  odd.plan.add_weight({"odd", DType::q4_0, 1, 1, 33, {}});
  EXPECT_NE(odd.error(Add{odd.x8, odd.y8, odd.x8}).find("not a whole number of q4_0 blocks"),
            std::string::npos);
}

}  // namespace
}  // namespace kapitsa::plan
