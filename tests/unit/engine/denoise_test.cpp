// Which tokens of a block settle, from logits written by hand.
#include "engine/denoise.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kapitsa::engine {
namespace {

constexpr int32_t kVocab = 40;
constexpr int32_t kMask = 7;

model::Diffusion masked(int32_t block, double threshold, int32_t steps) {
  model::MaskedDiffusion rule;
  rule.mask_token = kMask;
  rule.threshold = threshold;
  rule.steps = steps;
  return {.block = block, .rule = rule};
}

DenoiseParams greedy() {
  DenoiseParams params;
  params.sampling.temperature = 0.0F;
  return params;
}

// A row in which `token` has this probability and the others share the rest.
std::vector<float> row(int32_t token, double probability) {
  std::vector<float> logits(kVocab,
                            static_cast<float>(std::log((1.0 - probability) / (kVocab - 2))));
  logits[static_cast<size_t>(token)] = static_cast<float>(std::log(probability));
  logits[kMask] = 50.0F;  // never drawn, and without a share
  return logits;
}

std::vector<float> rows(std::initializer_list<std::pair<int32_t, double>> places) {
  std::vector<float> all;
  for (const auto& [token, probability] : places) {
    const std::vector<float> one = row(token, probability);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST(Denoise, a_block_begins_with_the_tokens_of_the_prompt_that_are_in_it) {
  const Denoiser denoiser(masked(4, 0.9, 4), kVocab);
  Block block;
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  denoiser.open(greedy(), prompt, block);
  EXPECT_EQ(block.first, 4);
  EXPECT_EQ(block.n_given, 2);
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{5, 6, kMask, kMask}));
  std::vector<int32_t> places;
  denoiser.wanted(block, places);
  EXPECT_EQ(places, (std::vector<int32_t>{2, 3}));
}

TEST(Denoise, what_is_above_the_threshold_settles_and_streams_in_order) {
  Denoiser denoiser(masked(4, 0.6, 4), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  ASSERT_TRUE(denoiser.step(greedy(), rows({{1, 0.5}, {2, 0.7}, {3, 0.4}, {4, 0.9}}), block).ok());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{kMask, 2, kMask, 4}));
  EXPECT_EQ(block.n_settled, 0);
  ASSERT_TRUE(denoiser.step(greedy(), rows({{5, 0.65}, {6, 0.5}}), block).ok());
  EXPECT_EQ(block.n_settled, 2);
  ASSERT_TRUE(denoiser.step(greedy(), rows({{8, 0.1}}), block).ok());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{5, 2, 8, 4}));
  EXPECT_TRUE(block.is_done());
}

TEST(Denoise, below_the_threshold_the_likeliest_settles_the_first_of_equals) {
  Denoiser denoiser(masked(4, 0.9, 4), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  ASSERT_TRUE(denoiser.step(greedy(), rows({{1, 0.2}, {2, 0.5}, {3, 0.5}, {4, 0.4}}), block).ok());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{kMask, 2, kMask, kMask}));
}

TEST(Denoise, few_steps_settle_more_at_once) {
  Denoiser denoiser(masked(4, 0.99, 2), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  ASSERT_TRUE(denoiser.step(greedy(), rows({{1, 0.2}, {2, 0.5}, {3, 0.6}, {4, 0.4}}), block).ok());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{kMask, 2, 3, kMask}));
  ASSERT_TRUE(denoiser.step(greedy(), rows({{1, 0.2}, {4, 0.2}}), block).ok());
  EXPECT_TRUE(block.is_done());
}

TEST(Denoise, a_request_may_lower_the_threshold) {
  Denoiser denoiser(masked(4, 0.99, 4), kVocab);
  DenoiseParams params = greedy();
  params.threshold = 0.0F;
  Block block;
  denoiser.open(params, {}, block);
  ASSERT_TRUE(denoiser.step(params, rows({{1, 0.2}, {2, 0.5}, {3, 0.6}, {4, 0.4}}), block).ok());
  EXPECT_TRUE(block.is_done());
}

TEST(Denoise, settled_tokens_change_where_the_model_edits) {
  model::Diffusion diffusion = masked(2, 0.5, 2);
  std::get<model::MaskedDiffusion>(diffusion.rule).edit_threshold = 0.3;
  Denoiser denoiser(diffusion, kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  ASSERT_TRUE(denoiser.step(greedy(), rows({{1, 0.9}, {2, 0.9}}), block).ok());
  EXPECT_EQ(block.n_settled, 0) << "what may change is not told";
  ASSERT_TRUE(denoiser.step(greedy(), rows({{5, 0.4}, {6, 0.2}}), block).ok());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{5, 2}));
  EXPECT_FALSE(block.is_done());
  ASSERT_TRUE(denoiser.step(greedy(), rows({{5, 0.4}, {2, 0.2}}), block).ok());
  EXPECT_TRUE(block.is_done());
}

TEST(Denoise, draws_depend_on_seed_position_and_step_alone) {
  const auto draw = [](uint64_t seed, size_t n_before, int32_t n_steps) {
    Denoiser denoiser(masked(1, 0.0, 1), kVocab);
    DenoiseParams params;
    params.sampling.seed = seed;
    const std::vector<int32_t> before(n_before, 1);
    Block block;
    denoiser.open(params, before, block);
    block.step = n_steps;
    EXPECT_TRUE(denoiser.step(params, std::vector<float>(kVocab, 0.0F), block).ok());
    return block.tokens[0];
  };
  const auto differ = [&](auto vary) {
    int32_t n = 0;
    for (int32_t i = 1; i <= 8; ++i)
      n += vary(i) != draw(3, 5, 0) ? 1 : 0;
    return n;
  };
  EXPECT_EQ(draw(3, 5, 0), draw(3, 5, 0));
  EXPECT_GE(differ([&](int32_t i) { return draw(3 + static_cast<uint64_t>(i), 5, 0); }), 6);
  EXPECT_GE(differ([&](int32_t i) { return draw(3, 5 + static_cast<size_t>(i), 0); }), 6);
  EXPECT_GE(differ([&](int32_t i) { return draw(3, 5, i); }), 6);
}

TEST(Denoise, broken_logits_are_an_error) {
  Denoiser denoiser(masked(1, 0.9, 1), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  EXPECT_FALSE(denoiser.step(greedy(), std::vector<float>(kVocab, NAN), block).ok());
}

// --- Canvas --------------------------------------------------------------------------------------

model::Diffusion canvas(int32_t block, int32_t steps) {
  model::CanvasDiffusion rule;
  rule.steps = steps;
  rule.temperature_low = rule.temperature_high = 1.0;
  return {.block = block, .rule = rule};
}

TEST(DenoiseCanvas, begins_with_random_tokens_after_the_last_one) {
  const Denoiser denoiser(canvas(8, 4), kVocab);
  const std::vector<int32_t> prompt = {1, 2, 3};
  Block block;
  denoiser.open(greedy(), prompt, block);
  EXPECT_EQ(block.first, 3);
  EXPECT_EQ(block.n_given, 0);
  EXPECT_EQ(block.conditions, std::vector<float>(8 * kVocab, 0.0F));
  for (const int32_t token : block.tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, kVocab);
  }
  EXPECT_NE(block.tokens, std::vector<int32_t>(8, block.tokens[0]));
}

TEST(DenoiseCanvas, accepts_the_surest_places_up_to_the_entropy_bound) {
  Denoiser denoiser(canvas(4, 4), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  std::vector<float> logits(4 * kVocab, 0.0F);
  logits[1 * kVocab + 9] = 30.0F;  // sure: no entropy
  logits[2 * kVocab + 4] = 30.0F;
  ASSERT_TRUE(denoiser.step(greedy(), logits, block).ok());
  EXPECT_FALSE(block.is_done());
  // The third by entropy is still accepted, for its own does not count; then the bound is reached.
  EXPECT_EQ(std::vector<int32_t>(block.tokens.begin(), block.tokens.begin() + 3),
            (std::vector<int32_t>{0, 9, 4}));
  EXPECT_NE(block.tokens[3], 0) << "a random token";
  EXPECT_NEAR(block.conditions[0], 1.0F / kVocab, 1e-6F);
  EXPECT_NEAR(block.conditions[kVocab + 9], 1.0F, 1e-6F);
}

TEST(DenoiseCanvas, settles_when_sure_and_unchanged) {
  Denoiser denoiser(canvas(2, 10), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  std::vector<float> logits(2 * kVocab, 0.0F);
  logits[5] = logits[kVocab + 6] = 40.0F;
  ASSERT_TRUE(denoiser.step(greedy(), logits, block).ok());
  EXPECT_FALSE(block.is_done()) << "it was another canvas before";
  ASSERT_TRUE(denoiser.step(greedy(), logits, block).ok());
  EXPECT_TRUE(block.is_done());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{5, 6}));
}

TEST(DenoiseCanvas, the_last_step_settles_the_likeliest_tokens) {
  Denoiser denoiser(canvas(2, 3), kVocab);
  Block block;
  denoiser.open(greedy(), {}, block);
  std::vector<float> logits(2 * kVocab, 0.0F);
  logits[5] = logits[kVocab + 6] = 0.5F;
  for (int32_t step = 0; step < 3; ++step) {
    EXPECT_FALSE(block.is_done());
    ASSERT_TRUE(denoiser.step(greedy(), logits, block).ok());
  }
  EXPECT_TRUE(block.is_done());
  EXPECT_EQ(block.tokens, (std::vector<int32_t>{5, 6}));
}

}  // namespace
}  // namespace kapitsa::engine
