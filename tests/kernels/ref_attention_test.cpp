// The reference's attention, rope and block selection against formulas written here.
#include "support/plan_builder.h"
#include "support/plan_runner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kapitsa::test {
namespace {

using plan::BufferId;

constexpr double kF32 = 1e-6;

PlanRunner open(const PlanBuilder& builder) {
  static const auto device = backend::open_device("ref", {});
  auto runner = PlanRunner::open(**device, builder.plan);
  KAPITSA_CHECK(runner.ok(), runner ? "" : runner.error().message.c_str());
  return std::move(*runner);
}

std::vector<int32_t> iota(int32_t first, int32_t n) {
  std::vector<int32_t> result;
  for (int32_t i = 0; i < n; ++i)
    result.push_back(first + i);
  return result;
}

// Attention of one head of one element: token t has q = q[t], k = k[t], v = v[t].
struct Scalar {
  std::vector<float> q, k, v;
  PlanBuilder b{3};
  plan::Attend op;
  BufferId out;
  float sink = 0.7F;

  Scalar() {
    for (int32_t t = 0; t < kVocab; ++t) {
      q.push_back(b.random.uniform(-3.0F, 3.0F));
      k.push_back(b.random.uniform(-3.0F, 3.0F));
      v.push_back(b.random.uniform(-1.0F, 1.0F));
    }
    out = b.output(1);
    op.q = b.plan.heads(b.input_of(q, 1));
    op.k_cache = b.cache(1);
    op.v_cache = b.cache(1);
    op.out = b.plan.heads(out);
    op.scale = 0.8F;
    b.op(plan::CacheAppend{b.plan.heads(b.input_of(k, 1)), op.k_cache});
    b.op(plan::CacheAppend{b.plan.heads(b.input_of(v, 1)), op.v_cache});
  }
  PlanRunner open_runner() {
    b.op(op);
    return open(b);
  }
  // Softmax over the keys of these tokens.
  double expected(int32_t query, const std::vector<int32_t>& keys) const {
    double sum = op.sinks ? std::exp(static_cast<double>(sink)) : 0.0;
    double value = 0.0;
    for (const int32_t key : keys) {
      double score = static_cast<double>(op.scale) *
                     static_cast<double>(q[static_cast<size_t>(query)]) *
                     static_cast<double>(k[static_cast<size_t>(key)]);
      if (op.softcap > 0) {
        const auto cap = static_cast<double>(op.softcap);
        score = cap * std::tanh(score / cap);
      }
      sum += std::exp(score);
      value += std::exp(score) * static_cast<double>(v[static_cast<size_t>(key)]);
    }
    return value / sum;
  }
};

TEST(RefAttend, PrefillIsASoftmaxOverTheTokensSoFar) {
  Scalar scalar;
  PlanRunner runner = scalar.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 40)));
  const std::vector<float> out = runner.read(scalar.out).value();
  for (int32_t t = 0; t < 40; ++t)
    EXPECT_NEAR(out[static_cast<size_t>(t)], scalar.expected(t, iota(0, t + 1)), kF32);
}

TEST(RefAttend, SinkSoftcapAndWindowApplyTogether) {
  Scalar scalar;
  scalar.op.softcap = 2.0F;
  scalar.op.window = 3;
  scalar.op.sinks = scalar.b.weight_of(std::span(&scalar.sink, 1), 1, 1);
  PlanRunner runner = scalar.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 10)));
  const std::vector<float> out = runner.read(scalar.out).value();
  EXPECT_NEAR(out[0], scalar.expected(0, {0}), kF32);
  EXPECT_NEAR(out[9], scalar.expected(9, {7, 8, 9}), kF32);
}

TEST(RefAttend, TreeRowsSeeTheirAncestorsByPositionNotBySlot) {
  Scalar scalar;
  scalar.op.window = 3;
  PlanRunner runner = scalar.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 4)));
  ASSERT_TRUE(runner.decode({{0, {10, 11, 12, 13}, {-1, -1, 0, 1}}}));
  const std::vector<float> out = runner.read(scalar.out).value();
  EXPECT_NEAR(out[0], scalar.expected(10, {2, 3, 10}), kF32);
  EXPECT_NEAR(out[1], scalar.expected(11, {2, 3, 11}), kF32);
  EXPECT_NEAR(out[2], scalar.expected(12, {3, 10, 12}), kF32);
  EXPECT_NEAR(out[3], scalar.expected(13, {3, 11, 13}), kF32);
}

TEST(RefAttend, BlockMaskShowsTheWholeOwnBlock) {
  Scalar scalar;
  scalar.op.mask = plan::Mask::block;
  scalar.op.block = 4;
  PlanRunner runner = scalar.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 6)));
  const std::vector<float> out = runner.read(scalar.out).value();
  EXPECT_NEAR(out[0], scalar.expected(0, iota(0, 4)), kF32);
  EXPECT_NEAR(out[3], scalar.expected(3, iota(0, 4)), kF32);
  EXPECT_NEAR(out[4], scalar.expected(4, iota(0, 6)), kF32);
}

TEST(RefAttend, BidirectionalCanvasSeesItselfAndTheWindowBeforeIt) {
  Scalar scalar;
  scalar.op.mask = plan::Mask::bidirectional;
  scalar.op.window = 3;
  PlanRunner runner = scalar.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 8)));
  ASSERT_TRUE(runner.decode({{0, iota(20, 5), {}}, {1, {30}, {}}}));
  const std::vector<float> out = runner.read(scalar.out).value();
  for (int32_t i = 0; i < 5; ++i)
    EXPECT_NEAR(out[static_cast<size_t>(i)], scalar.expected(20 + i, {6, 7, 20, 21, 22, 23, 24}),
                kF32);
  EXPECT_NEAR(out[5], scalar.expected(30, {30}), kF32);
}

TEST(RefAttend, QueryHeadsShareKeyHeadsInGroups) {
  PlanBuilder b(1);
  const std::vector<float> values = {1.0F, 2.0F};
  const std::vector<float> queries = {1.0F, 1.0F, 1.0F, 1.0F};
  const plan::StateId cache = b.cache(2);
  b.op(plan::CacheAppend{b.plan.heads(b.input_of(values, 2), 2), cache});
  const BufferId out = b.output(4);
  b.op(plan::Attend{.q = b.plan.heads(b.input_of(queries, 4), 4),
                    .k_cache = cache,
                    .v_cache = cache,
                    .n_kv_heads = 2,
                    .out = b.plan.heads(out, 4)});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.decode({{0, {0}, {}}}));
  EXPECT_EQ(runner.read(out).value(), (std::vector<float>{1.0F, 1.0F, 2.0F, 2.0F}));
}

TEST(RefCache, RoundsThroughItsType) {
  PlanBuilder b(1);
  const float value = 1.0F + 0x1p-10F + 0x1p-13F;
  const plan::StateId k = b.cache(1);
  const plan::StateId f16 = b.cache(1, DType::f16);
  const plan::Heads x = b.plan.heads(b.input_of(std::span(&value, 1), 1));
  b.op(plan::CacheAppend{x, k});
  b.op(plan::CacheAppend{x, f16});
  const BufferId out = b.output(1);
  b.op(plan::Attend{.q = x, .k_cache = k, .v_cache = f16, .out = b.plan.heads(out)});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.decode({{0, {0}, {}}}));
  EXPECT_EQ(runner.read(out).value()[0], 1.0F + 0x1p-10F);
}

// A block of 32 keeps whole multiples of its largest value / 127.
TEST(RefCache, RoundsBlocksToBytes) {
  PlanBuilder b(1);
  std::vector<float> values(64, 0.3F);
  values[5] = -127.0F;
  values[40] = 12.7F;
  const plan::StateId k = b.cache(64);
  const plan::StateId v = b.cache(64, DType::q8_0);
  const plan::Heads x = b.plan.heads(b.input_of(values, 64));
  b.op(plan::CacheAppend{x, k});
  b.op(plan::CacheAppend{x, v});
  const BufferId out = b.output(64);
  b.op(plan::Attend{.q = x, .k_cache = k, .v_cache = v, .out = b.plan.heads(out)});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.decode({{0, {0}, {}}}));
  const std::vector<float> found = runner.read(out).value();
  EXPECT_EQ(found[0], 0.0F);
  EXPECT_EQ(found[5], -127.0F);
  EXPECT_NEAR(found[32], 0.3F, 1e-4);  // 3 steps of 0.1, whose scale has 11 bits
  EXPECT_NEAR(found[40], 12.7F, 4e-3);
}

TEST(RefCache, AnEightBitCacheIsRefusedByName) {
  PlanBuilder b(1);
  b.op(plan::CacheAppend{b.input_heads(1, 4), b.cache(4, DType::i8)});
  const auto device = backend::open_device("ref", {});
  const auto runner = PlanRunner::open(**device, b.plan);
  ASSERT_FALSE(runner);
  EXPECT_EQ(runner.error().code, ErrorCode::unsupported);
  EXPECT_NE(runner.error().message.find("i8"), std::string::npos);
}

TEST(RefRope, RotatesHalvesOrNeighboursAndPassesTheRest) {
  for (const auto pairs : {plan::RopePairs::half, plan::RopePairs::adjacent}) {
    PlanBuilder b(1);
    // Row t of the table is the same for every token: only the position differs.
    std::vector<float> values;
    for (int t = 0; t < 4; ++t)
      values.insert(values.end(), {1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
    const BufferId out = b.output(5);
    b.op(plan::Copy{b.plan.heads(b.input_of(values, 5)), b.plan.heads(out)});
    b.op(plan::ApplyRope{b.plan.heads(out), {{1.0F, 0.25F}, 2.0F, pairs}});
    PlanRunner runner = open(b);
    ASSERT_TRUE(runner.prefill(0, iota(0, 4)));
    const std::vector<float> rows = runner.read(out).value();
    const bool half = pairs == plan::RopePairs::half;
    const size_t first[] = {0, half ? 1U : 2U};
    const size_t second[] = {half ? 2U : 1U, 3};
    const double angle[] = {3.0, 0.75};  // position 3
    for (size_t i = 0; i < 2; ++i) {
      const auto x = static_cast<double>(first[i] + 1);
      const auto y = static_cast<double>(second[i] + 1);
      EXPECT_NEAR(rows[15 + first[i]], 2 * (x * std::cos(angle[i]) - y * std::sin(angle[i])), kF32);
      EXPECT_NEAR(rows[15 + second[i]], 2 * (x * std::sin(angle[i]) + y * std::cos(angle[i])),
                  kF32);
    }
    EXPECT_EQ(rows[19], 5.0F);
  }
}

TEST(RefSelectBlocks, KeepsTheBestCompleteBlocksAndTheTail) {
  PlanBuilder b(1);
  // Keys of one element; blocks of 2 have means 1, 4, 4, -3, 2.
  const std::vector<float> keys = {0, 2, 3, 5, 4, 4, -3, -3, 2, 2, 9};
  const std::vector<float> ones(11, 1.0F);
  const plan::StateId cache = b.cache(1);
  b.op(plan::CacheAppend{b.plan.heads(b.input_of(keys, 1)), cache});
  const BufferId out = b.output(3, DType::i32);
  b.op(plan::SelectBlocks{.q = b.plan.heads(b.input_of(ones, 1)),
                          .key_cache = cache,
                          .key_norm = {},
                          .rope = {},
                          .ratio = 2,
                          .budget = 2,
                          .out = out});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.prefill(0, iota(0, 11)));
  const std::vector<float> rows = runner.read(out).value();
  const auto row = [&](size_t r) {
    return std::vector<float>(rows.begin() + static_cast<std::ptrdiff_t>(3 * r),
                              rows.begin() + static_cast<std::ptrdiff_t>(3 * r + 3));
  };
  EXPECT_EQ(row(0), (std::vector<float>{0, -1, -1}));  // only the incomplete block
  EXPECT_EQ(row(1), (std::vector<float>{0, -1, -1}));  // only the complete one
  EXPECT_EQ(row(4), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(row(5), (std::vector<float>{1, 2, -1}));
  EXPECT_EQ(row(9), (std::vector<float>{1, 2, -1}));
  EXPECT_EQ(row(10), (std::vector<float>{1, 2, 5}));
}

TEST(RefSelectBlocks, TiesGoToTheLowerBlock) {
  PlanBuilder b(1);
  const std::vector<float> ones(6, 1.0F);
  const plan::StateId cache = b.cache(1);
  const plan::Heads x = b.plan.heads(b.input_of(ones, 1));
  b.op(plan::CacheAppend{x, cache});
  const BufferId out = b.output(3, DType::i32);
  b.op(plan::SelectBlocks{
      .q = x, .key_cache = cache, .key_norm = {}, .rope = {}, .ratio = 1, .budget = 2, .out = out});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.prefill(0, iota(0, 6)));
  const std::vector<float> rows = runner.read(out).value();
  EXPECT_EQ(std::vector<float>(rows.end() - 3, rows.end()), (std::vector<float>{0, 1, -1}));
}

}  // namespace
}  // namespace kapitsa::test
