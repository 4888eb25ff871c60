// The reference's routers, n-gram rows, elementwise functions and output ops against numbers
// computed by hand.
#include "support/plan_builder.h"
#include "support/plan_runner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kapitsa::test {
namespace {

using plan::BufferId;
using plan::Router;
using plan::RouterScore;

constexpr double kF32 = 1e-6;

PlanRunner open(const PlanBuilder& builder) {
  static const auto device = backend::open_device("ref", {});
  auto runner = PlanRunner::open(**device, builder.plan);
  KAPITSA_CHECK(runner.ok(), runner ? "" : runner.error().message.c_str());
  return std::move(*runner);
}

struct Chosen {
  std::vector<float> ids, weights;
};

// Routes one row of logits; `bias` and `expert_scale` may be empty.
Chosen route(const std::vector<float>& logits, Router router, const std::vector<float>& bias = {},
             const std::vector<float>& expert_scale = {}) {
  PlanBuilder b(1);
  const auto n = std::ssize(logits);
  router.n_experts = static_cast<int32_t>(n);
  if (!bias.empty()) router.selection_bias = b.weight_of(bias, 1, n);
  if (!expert_scale.empty()) router.expert_scale = b.weight_of(expert_scale, 1, n);
  const BufferId ids = b.output(router.top_k, DType::i32);
  const BufferId weights = b.output(router.top_k);
  b.op(plan::SelectExperts{b.input_of(logits, n), router, ids, weights});
  PlanRunner runner = open(b);
  const Status status = runner.decode({{0, {0}, {}}});
  KAPITSA_CHECK(status.ok(), "one row");
  return {runner.read(ids).value(), runner.read(weights).value()};
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(RefRouter, SoftmaxOverAllRenormalisedEqualsSoftmaxOverTheSelected) {
  const std::vector<float> logits = {0.5F, 2.0F, -1.0F, 1.0F};
  const Chosen all =
      route(logits, {.score = RouterScore::softmax, .top_k = 2, .renormalise = true});
  const Chosen selected = route(logits, {.score = RouterScore::softmax_selected, .top_k = 2});
  EXPECT_EQ(all.ids, (std::vector<float>{1, 3}));
  EXPECT_EQ(selected.ids, all.ids);
  for (const Chosen& chosen : {all, selected}) {
    EXPECT_NEAR(chosen.weights[0], sigmoid(1.0), kF32);
    EXPECT_NEAR(chosen.weights[1], sigmoid(-1.0), kF32);
  }
}

TEST(RefRouter, SoftmaxWithoutRenormalisationKeepsTheShareOfAll) {
  const Chosen chosen =
      route({0.0F, 0.0F, 0.0F, 0.0F}, {.score = RouterScore::softmax, .top_k = 2});
  EXPECT_EQ(chosen.ids, (std::vector<float>{0, 1}));  // ties to the lower index
  EXPECT_NEAR(chosen.weights[0], 0.25, kF32);
}

TEST(RefRouter, BiasChangesTheChoiceAndNotTheWeight) {
  const Chosen chosen =
      route({1.0F, 0.0F, -1.0F},
            {.score = RouterScore::sigmoid, .top_k = 2, .renormalise = true, .scale = 2.5F},
            {0.0F, -1.0F, 1.0F});
  EXPECT_EQ(chosen.ids, (std::vector<float>{2, 0}));
  const double low = sigmoid(-1.0);
  const double high = sigmoid(1.0);
  EXPECT_NEAR(chosen.weights[0], 2.5 * low / (low + high), kF32);
  EXPECT_NEAR(chosen.weights[1], 2.5 * high / (low + high), kF32);
}

TEST(RefRouter, GroupsCompeteByTheirTwoBestScores) {
  // Group sums of two: {3 + 0}, {2 + 1.9}, {-1 - 1}: as sigmoids the second group wins.
  const Chosen chosen =
      route({3.0F, -9.0F, 2.0F, 1.9F, -1.0F, -1.0F},
            {.score = RouterScore::sigmoid, .top_k = 2, .n_groups = 3, .top_groups = 1});
  EXPECT_EQ(chosen.ids, (std::vector<float>{2, 3}));
  EXPECT_NEAR(chosen.weights[1], sigmoid(1.9), kF32);
}

TEST(RefRouter, ExpertScaleMultipliesTheFinalWeight) {
  const Chosen chosen =
      route({0.0F, 0.0F}, {.score = RouterScore::softmax_selected, .top_k = 2}, {}, {3.0F, 5.0F});
  EXPECT_NEAR(chosen.weights[0], 1.5, kF32);
  EXPECT_NEAR(chosen.weights[1], 2.5, kF32);
}

// The multipliers of the released qwen4_exp, with head vocabularies small enough for a table whose
// row r holds the number r.
struct Ngrams {
  static constexpr int32_t kEos = 9;
  static constexpr int64_t kMultipliers[] = {23703573157769, 20109073645365, 8052911324071};
  static constexpr int64_t kVocabs[] = {1009, 1013, 2003, 2011};
  static constexpr int64_t kOffsets[] = {0, 1009, 2022, 4025};
  PlanBuilder b{1};
  BufferId out;

  Ngrams() {
    std::vector<float> table;
    for (int64_t r = 0; r < 6036; ++r)
      table.push_back(static_cast<float>(r));
    b.plan.n_history = 2;
    out = b.output(4);
    b.op(plan::NgramRows{b.weight_of(table, 6036, 1),
                         {std::begin(kMultipliers), std::end(kMultipliers)},
                         {std::begin(kOffsets), std::end(kOffsets)},
                         {std::begin(kVocabs), std::end(kVocabs)},
                         2,
                         kEos,
                         out});
  }
  // Rows for the token s0 after s1 after s2.
  static std::vector<float> expected(int64_t s0, int64_t s1, int64_t s2) {
    const int64_t id2 = (s0 * kMultipliers[0]) ^ (s1 * kMultipliers[1]);
    const int64_t id3 = id2 ^ (s2 * kMultipliers[2]);
    std::vector<float> rows;
    for (size_t h = 0; h < 4; ++h)
      rows.push_back(static_cast<float>(kOffsets[h] + (h < 2 ? id2 : id3) % kVocabs[h]));
    return rows;
  }
};

TEST(RefNgram, ContextStopsAtTheStartAndAtTheLatestEnd) {
  Ngrams ngrams;
  PlanRunner runner = open(ngrams.b);
  ASSERT_TRUE(runner.prefill(0, std::vector<int32_t>{5, 7, 3, 9, 4, 6, 8}));
  const std::vector<float> rows = runner.read(ngrams.out).value();
  const std::vector<std::vector<float>> expected = {
      Ngrams::expected(5, 9, 9), Ngrams::expected(7, 5, 9), Ngrams::expected(3, 7, 5),
      Ngrams::expected(9, 3, 7),  // the end itself still sees what it ends
      Ngrams::expected(4, 9, 9), Ngrams::expected(6, 4, 9), Ngrams::expected(8, 6, 4)};
  for (size_t r = 0; r < expected.size(); ++r)
    EXPECT_EQ(std::vector<float>(rows.begin() + static_cast<std::ptrdiff_t>(4 * r),
                                 rows.begin() + static_cast<std::ptrdiff_t>(4 * r + 4)),
              expected[r])
        << "row " << r;
}

TEST(RefNgram, TreeRowsUseTheirOwnPath) {
  Ngrams ngrams;
  PlanRunner runner = open(ngrams.b);
  ASSERT_TRUE(runner.prefill(0, std::vector<int32_t>{5, 7}));
  ASSERT_TRUE(runner.decode({{0, {3, 4, 6}, {-1, 0, -1}}}));
  const std::vector<float> rows = runner.read(ngrams.out).value();
  std::vector<float> expected;
  for (const auto& part :
       {Ngrams::expected(3, 7, 5), Ngrams::expected(4, 3, 7), Ngrams::expected(6, 7, 5)})
    expected.insert(expected.end(), part.begin(), part.end());
  EXPECT_EQ(rows, expected);
}

TEST(RefActivate, EqualsTheFormulas) {
  using plan::Activation;
  const std::vector<std::pair<Activation, double>> at_minus_two = {
      {Activation::identity, -2.0},
      {Activation::silu, -2.0 * sigmoid(-2.0)},
      {Activation::gelu_tanh, -0.045402305912},
      {Activation::relu_squared, 0.0},
      {Activation::sigmoid, sigmoid(-2.0)},
      {Activation::softplus, std::log(1.0 + std::exp(-2.0))},
      {Activation::tanh, std::tanh(-2.0)},
      {Activation::signed_sqrt, -std::sqrt(2.0)},
  };
  for (const auto& [function, expected] : at_minus_two) {
    PlanBuilder b(1);
    const std::vector<float> x = {-2.0F};
    const BufferId out = b.output(1);
    b.op(plan::Activate{b.input_of(x, 1), out, function});
    PlanRunner runner = open(b);
    ASSERT_TRUE(runner.decode({{0, {0}, {}}}));
    EXPECT_NEAR(runner.read(out).value()[0], expected, kF32) << static_cast<int>(function);
  }
}

TEST(RefTopLogits, OrdersByValueThenIdAndSumsExponentials) {
  PlanBuilder b(1);
  const plan::RowSpace space = plan::RowSpace::output;
  const std::vector<float> logits = {1.0F, 3.0F, 3.0F, -2.0F};
  const BufferId rows = b.plan.add_buffer({.name = "rows", .width = 4, .rows = space});
  const BufferId ids = b.output(3, DType::i32, space);
  const BufferId values = b.output(3, DType::f32, space);
  const BufferId sum = b.output(1, DType::f32, space);
  b.op(plan::GatherOutputs{b.input_of(logits, 4), rows});
  b.op(plan::TopLogits{rows, ids, values, sum});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.decode({{0, {0}, {}}}));
  EXPECT_EQ(runner.read(ids).value(), (std::vector<float>{1, 2, 0}));
  EXPECT_EQ(runner.read(values).value(), (std::vector<float>{3.0F, 3.0F, 1.0F}));
  EXPECT_NEAR(runner.read(sum).value()[0],
              std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(-2.0)), kF32);
}

TEST(RefNorm, EqualsTheFormula) {
  PlanBuilder b(1);
  const std::vector<float> x = {3.0F, 4.0F, 0.0F, 1.0F};
  const std::vector<float> weight = {2.0F, 0.5F};
  const BufferId out = b.output(4);
  b.op(plan::RmsNorm{b.plan.heads(b.input_of(x, 4), 2),
                     {true, b.weight_of(weight, 1, 2), 0.5F},
                     b.plan.heads(out, 2)});
  PlanRunner runner = open(b);
  ASSERT_TRUE(runner.decode({{0, {0}, {}}}));
  const std::vector<float> y = runner.read(out).value();
  EXPECT_NEAR(y[0], 2.0 * 3.0 / std::sqrt(13.0), kF32);  // mean square 12.5, eps 0.5
  EXPECT_NEAR(y[1], 0.5 * 4.0 / std::sqrt(13.0), kF32);
  EXPECT_NEAR(y[2], 0.0, kF32);
  EXPECT_NEAR(y[3], 0.5 * 1.0 / std::sqrt(1.0), kF32);
}

}  // namespace
}  // namespace kapitsa::test
