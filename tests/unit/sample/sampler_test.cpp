// The sampler against a brute-force one in double precision that shares no code with it, and its
// statistical and purity properties.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace kapitsa::sample {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

std::array<uint32_t, 4> reference_philox(std::array<uint32_t, 4> c, uint64_t seed) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int i = 0; i < 10; ++i, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
  }
  return c;
}

double reference_gumbel(const SamplerParams& p, uint32_t position, uint32_t token) {
  const uint32_t r = reference_philox({position, token / 4, 0, p.choice}, p.seed)[token % 4];
  const double w = static_cast<double>(static_cast<float>(r) + 0.5f) / 4294967296.0;
  return -std::log(-std::log1p(-std::min(w, 1 - 1.0 / 16777216)));
}

// Logits after mask, bias and penalties.
std::vector<double> reference_logits(const SamplerParams& p, const SampleInput& in) {
  std::vector<double> l(in.logits.begin(), in.logits.end());
  for (size_t t = 0; t < l.size(); ++t) {
    if (!in.allowed.empty() && !(in.allowed[t / 32] & (1u << t % 32))) l[t] = kMinusInfinity;
    const auto bias = p.logit_bias.find(static_cast<int32_t>(t));
    if (bias != p.logit_bias.end()) l[t] += static_cast<double>(bias->second);
    const size_t n = in.history.size();
    const size_t window = p.penalty_window < 0 ? n : static_cast<size_t>(p.penalty_window);
    int seen = 0, generated = 0;
    for (size_t i = n - std::min(n, window); i < n; ++i) {
      if (in.history[i] != static_cast<int32_t>(t)) continue;
      ++seen;
      if (i >= in.n_prompt) ++generated;
    }
    const double repetition = static_cast<double>(p.repetition_penalty);
    if (seen > 0) l[t] = l[t] > 0 ? l[t] / repetition : l[t] * repetition;
    l[t] -= static_cast<double>(p.frequency_penalty) * generated;
    if (generated > 0) l[t] -= static_cast<double>(p.presence_penalty);
  }
  return l;
}

// The tokens that remain after the truncations, most likely first.
std::vector<size_t> reference_kept(const SamplerParams& p, const std::vector<double>& l) {
  std::vector<size_t> order(l.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return l[a] > l[b] || (l[a] == l[b] && a < b); });
  const auto weight = [&](size_t t) {
    return std::exp((l[t] - l[order[0]]) / static_cast<double>(p.temperature));
  };
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(p.top_k)));
  if (p.top_p < 1) {
    double total = 0, sum = 0;
    for (const size_t t : order)
      total += weight(t);
    size_t n = 0;
    do
      sum += weight(order[n++]);
    while (n < order.size() && sum < static_cast<double>(p.top_p) * total);
    order.resize(n);
  }
  std::erase_if(order, [&](size_t t) { return weight(t) < static_cast<double>(p.min_p); });
  return order;
}

int32_t reference_sample(const SamplerParams& p, const SampleInput& in) {
  const std::vector<double> l = reference_logits(p, in);
  if (p.temperature == 0)
    return static_cast<int32_t>(std::max_element(l.begin(), l.end()) - l.begin());
  size_t best = 0;
  double best_score = kMinusInfinity;
  for (const size_t t : reference_kept(p, l)) {
    const double score = l[t] / static_cast<double>(p.temperature) +
                         reference_gumbel(p, in.position, static_cast<uint32_t>(t));
    if (score > best_score) {
      best_score = score;
      best = t;
    }
  }
  return static_cast<int32_t>(best);
}

std::vector<float> random_logits(size_t n, float spread, std::mt19937& random) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (float& x : logits)
    x = normal(random);
  return logits;
}

int32_t token_of(const SamplerParams& params, const SampleInput& input) {
  SamplerScratch scratch;
  const auto sampled = sample_token(params, input, scratch);
  EXPECT_TRUE(sampled) << sampled.error().message;
  return sampled ? sampled->token : -1;
}

TEST(Sampler, equals_the_brute_force_sampler) {
  std::mt19937 random(11);
  const auto uniform = [&](float low, float high) {
    return low + (high - low) * static_cast<float>(random() >> 8) * 0x1p-24f;
  };
  SamplerScratch scratch;
  std::map<int32_t, int> drawn;
  for (int trial = 0; trial < 4000; ++trial) {
    const size_t n_vocab = 1 + random() % (trial % 10 == 0 ? 5000 : 200);
    const auto logits = random_logits(n_vocab, uniform(0.1f, 6), random);
    const auto token = [&] { return static_cast<int32_t>(random() % n_vocab); };
    std::vector<int32_t> history(random() % 50);
    for (int32_t& t : history)
      t = token();
    SamplerParams p;
    p.temperature = random() % 5 == 0 ? 0.0f : uniform(0.2f, 2);
    if (random() % 2) p.top_k = static_cast<int32_t>(random() % 60);
    if (random() % 2) p.top_p = uniform(0.05f, 1);
    if (random() % 3 == 0) p.min_p = uniform(0, 0.5f);
    if (random() % 3 == 0) p.repetition_penalty = uniform(0.8f, 1.5f);
    if (random() % 3 == 0) p.frequency_penalty = uniform(-1, 2);
    if (random() % 3 == 0) p.presence_penalty = uniform(-1, 2);
    if (random() % 2) p.penalty_window = static_cast<int64_t>(random() % 60);
    if (random() % 3 == 0) p.logit_bias = {{token(), uniform(-9, 9)}, {token(), uniform(-9, 9)}};
    p.seed = uint64_t{random()} << 32 | random();
    p.choice = static_cast<uint32_t>(random() % 3);
    std::vector<uint32_t> allowed;
    if (random() % 3 == 0) {
      for (size_t i = 0; i <= n_vocab / 32; ++i)
        allowed.push_back(static_cast<uint32_t>(random()));
      allowed[0] |= 1;  // token 0 always exists
    }
    const SampleInput in{.logits = logits,
                         .history = history,
                         .n_prompt = history.empty() ? 0 : random() % history.size(),
                         .position = static_cast<uint32_t>(random() % 100000),
                         .allowed = allowed};
    ASSERT_TRUE(validate(p, static_cast<int64_t>(n_vocab)));
    const auto sampled = sample_token(p, in, scratch);
    ASSERT_TRUE(sampled) << sampled.error().message;
    ASSERT_EQ(sampled->token, reference_sample(p, in)) << "trial " << trial;
    ++drawn[sampled->token];
  }
  EXPECT_GT(drawn.size(), 200u);  // the trials are not all trivial
}

// Pearson's test of drawn tokens against the kept part of the softmax.
void expect_softmax(const SamplerParams& base, const std::vector<float>& logits, double limit) {
  constexpr int n = 40000;
  SamplerParams params = base;
  SamplerScratch scratch;
  std::vector<int> counts(logits.size());
  for (uint32_t position = 0; position < n; ++position) {
    const auto sampled = sample_token(params, {.logits = logits, .position = position}, scratch);
    ASSERT_TRUE(sampled);
    ++counts[static_cast<size_t>(sampled->token)];
  }
  const std::vector<double> l(logits.begin(), logits.end());
  const auto kept = reference_kept(params, l);
  double total = 0, chi_square = 0;
  int n_kept = 0;
  for (const size_t t : kept)
    total += std::exp(l[t] / static_cast<double>(params.temperature));
  for (const size_t t : kept) {
    const double expected = n * std::exp(l[t] / static_cast<double>(params.temperature)) / total;
    chi_square += std::pow(counts[t] - expected, 2) / expected;
    n_kept += counts[t];
  }
  EXPECT_EQ(n_kept, n);
  EXPECT_LT(chi_square, limit);
}

TEST(Sampler, frequencies_over_positions_approach_the_softmax) {
  std::vector<float> logits(20);
  for (size_t i = 0; i < 20; ++i)
    logits[i] = static_cast<float>(i * 7 % 20) * 0.15f;
  // Limits at p = 0.001 for n - 1 degrees of freedom.
  expect_softmax({.seed = 1}, logits, 43.8);
  expect_softmax({.temperature = 0.7f, .seed = 2}, logits, 43.8);
  expect_softmax({.top_k = 8, .seed = 3}, logits, 24.3);
  expect_softmax({.temperature = 1.3f, .top_k = 10, .seed = 4, .choice = 3}, logits, 27.9);
}

TEST(Sampler, frequencies_over_seeds_approach_the_softmax) {
  const std::vector<float> logits{0, 1, 2};
  std::array<int, 3> counts{};
  for (uint64_t seed = 0; seed < 30000; ++seed)
    ++counts[static_cast<size_t>(token_of({.seed = seed}, {.logits = logits, .position = 5}))];
  EXPECT_NEAR(counts[0] / 30000.0, 0.0900, 0.007);
  EXPECT_NEAR(counts[1] / 30000.0, 0.2447, 0.010);
}

TEST(Sampler, a_draw_depends_on_nothing_but_its_inputs) {
  std::mt19937 random(3);
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 8; ++i)
    rows.push_back(random_logits(3000, 2, random));
  const std::vector<SamplerParams> chains{
      {.seed = 9}, {.top_k = 40, .seed = 9}, {.top_p = 0.9f, .seed = 9, .n_logprobs = 5}};
  std::vector<int32_t> alone, together;
  for (const SamplerParams& params : chains)
    for (size_t row = 0; row < rows.size(); ++row)
      alone.push_back(
          token_of(params, {.logits = rows[row], .position = static_cast<uint32_t>(row)}));
  // One scratch for all rows, last row first, every row twice.
  SamplerScratch scratch;
  for (size_t i = alone.size(); i-- > 0;) {
    const auto row = static_cast<uint32_t>(i % rows.size());
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto sampled =
          sample_token(chains[i / rows.size()], {.logits = rows[row], .position = row}, scratch);
      ASSERT_TRUE(sampled);
      EXPECT_EQ(sampled->token, alone[i]);
    }
  }
}

TEST(Sampler, seed_choice_and_position_each_change_the_draws) {
  const std::vector<float> logits(1000, 0.0f);
  const auto draws = [&](uint64_t seed, uint32_t choice, uint32_t first) {
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < 8; ++i)
      tokens.push_back(
          token_of({.seed = seed, .choice = choice}, {.logits = logits, .position = first + i}));
    return tokens;
  };
  EXPECT_EQ(draws(1, 0, 0), draws(1, 0, 0));
  EXPECT_NE(draws(1, 0, 0), draws(2, 0, 0));
  EXPECT_NE(draws(1, 0, 0), draws(1, 1, 0));
  EXPECT_NE(draws(1, 0, 0), draws(1, 0, 100));
}

// A truncation that removes only losers cannot change the draw: what makes shared noise work.
TEST(Sampler, truncation_keeps_the_winner_while_it_is_kept) {
  std::mt19937 random(8);
  const auto logits = random_logits(2000, 3, random);
  for (uint32_t position = 0; position < 200; ++position) {
    const SampleInput in{.logits = logits, .position = position};
    const int32_t full = token_of({}, in);
    const int32_t cut = token_of({.top_k = 1999}, in);
    EXPECT_EQ(full, cut);
  }
}

TEST(Sampler, ties_go_to_the_lowest_id) {
  const std::vector<float> logits{0, 3, 1, 3, 3};
  EXPECT_EQ(token_of({.temperature = 0}, {.logits = logits}), 1);
  EXPECT_EQ(token_of({.top_k = 1}, {.logits = logits}), 1);
  EXPECT_EQ(token_of({.top_p = 0}, {.logits = logits}), 1);
  EXPECT_EQ(token_of({.temperature = 0}, {.logits = std::vector<float>(70, -2.0f)}), 0);
}

TEST(Sampler, penalties_count_the_window_and_leave_the_prompt_to_repetition) {
  const std::vector<float> logits{2.0f, 1.9f, 1.0f};
  const std::vector<int32_t> history{0, 2, 2};
  const SampleInput all_prompt{.logits = logits, .history = history, .n_prompt = 3};
  const SampleInput no_prompt{.logits = logits, .history = history};
  EXPECT_EQ(token_of({.temperature = 0, .presence_penalty = 1}, all_prompt), 0);
  EXPECT_EQ(token_of({.temperature = 0, .presence_penalty = 1}, no_prompt), 1);
  EXPECT_EQ(token_of({.temperature = 0, .presence_penalty = 1, .penalty_window = 2}, no_prompt), 0);
  EXPECT_EQ(token_of({.temperature = 0, .repetition_penalty = 1.2f}, all_prompt), 1);
  EXPECT_EQ(token_of({.temperature = 0, .frequency_penalty = -0.6f}, no_prompt), 0);
  EXPECT_EQ(token_of({.temperature = 0, .frequency_penalty = -1.2f}, no_prompt), 2);
}

TEST(Sampler, history_outside_the_vocabulary_is_harmless) {
  const std::vector<float> logits{1, 2};
  const std::vector<int32_t> history{-1, 2, 1000000};
  EXPECT_EQ(
      token_of({.temperature = 0, .presence_penalty = 2}, {.logits = logits, .history = history}),
      1);
}

TEST(Sampler, logprobs_are_the_softmax_before_temperature_and_truncation) {
  const std::vector<float> logits{1, 3, 2, 3};
  const SamplerParams params{
      .temperature = 0.5f, .top_k = 1, .logit_bias = {{0, 1.0f}}, .n_logprobs = 3};
  SamplerScratch scratch;
  const auto sampled = sample_token(params, {.logits = logits}, scratch);
  ASSERT_TRUE(sampled);
  const double log_sum = std::log(2 * std::exp(2.0) + 2 * std::exp(3.0));
  EXPECT_EQ(sampled->token, 1);
  ASSERT_TRUE(sampled->logprob.has_value());
  EXPECT_NEAR(*sampled->logprob, 3 - log_sum, 1e-6);
  ASSERT_EQ(sampled->top_logprobs.size(), 3u);
  EXPECT_EQ(sampled->top_logprobs[0].token, 1);
  EXPECT_EQ(sampled->top_logprobs[1].token, 3);
  EXPECT_EQ(sampled->top_logprobs[2].token, 0);  // ties with 2
  EXPECT_NEAR(sampled->top_logprobs[2].logprob, 2 - log_sum, 1e-6);
}

TEST(Sampler, logprobs_come_only_when_asked_for) {
  const std::vector<float> logits{1, 3};
  SamplerScratch scratch;
  const auto none = sample_token({}, {.logits = logits}, scratch);
  EXPECT_FALSE(none->logprob.has_value());
  const auto own = sample_token({.n_logprobs = 0}, {.logits = logits}, scratch);
  EXPECT_TRUE(own->logprob.has_value());
  EXPECT_TRUE(own->top_logprobs.empty());
  const auto more = sample_token({.n_logprobs = 20}, {.logits = logits}, scratch);
  EXPECT_EQ(more->top_logprobs.size(), 2u);
}

TEST(Sampler, the_mask_is_absolute) {
  std::mt19937 random(4);
  const auto logits = random_logits(100, 1, random);
  const std::vector<uint32_t> allowed{0, 1u << 5 | 1u << 9, 0, 0};
  SamplerParams params{.logit_bias = {{3, 100.0f}}};
  for (uint32_t position = 0; position < 100; ++position) {
    const int32_t token =
        token_of(params, {.logits = logits, .position = position, .allowed = allowed});
    EXPECT_TRUE(token == 37 || token == 41) << token;
  }
}

TEST(Sampler, broken_logits_are_errors_that_name_the_token) {
  SamplerScratch scratch;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(100, 1.0f);
    logits[77] = bad;
    for (const SamplerParams& params :
         {SamplerParams{}, SamplerParams{.temperature = 0}, SamplerParams{.top_k = 5}}) {
      const auto sampled = sample_token(params, {.logits = logits, .position = 12}, scratch);
      ASSERT_FALSE(sampled);
      EXPECT_EQ(sampled.error().code, ErrorCode::device_failed);
      EXPECT_TRUE(sampled.error().message.starts_with("position 12: the logit of token 77 is "));
    }
  }
}

TEST(Sampler, nothing_to_draw_is_an_error) {
  SamplerScratch scratch;
  const std::vector<float> logits(40, 1.0f);
  const std::vector<uint32_t> nothing(2), too_short(1, ~0u);
  EXPECT_EQ(sample_token({}, {.logits = logits, .allowed = nothing}, scratch).error().code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(sample_token({}, {.logits = logits, .allowed = too_short}, scratch).error().message,
            "the grammar mask has 1 words, expected 2 for 40 tokens");
  EXPECT_FALSE(sample_token({}, {}, scratch));
}

TEST(Sampler, minus_infinity_is_never_drawn) {
  std::vector<float> logits(64, -std::numeric_limits<float>::infinity());
  logits[10] = -1e30f;
  for (const SamplerParams& params : {SamplerParams{}, SamplerParams{.top_k = 60},
                                      SamplerParams{.top_p = 0.999f}, SamplerParams{.min_p = 0.1f}})
    EXPECT_EQ(token_of(params, {.logits = logits}), 10);
}

TEST(Sampler, a_warm_scratch_keeps_its_memory) {
  std::mt19937 random(6);
  const auto logits = random_logits(5000, 2, random);
  const std::vector<int32_t> history(300, 17);
  const SamplerParams params{
      .top_k = 100, .top_p = 0.9f, .presence_penalty = 0.5f, .n_logprobs = 20};
  SamplerScratch scratch;
  const auto memory = [&] {
    return std::array<const void*, 5>{scratch.logits.data(), scratch.candidates.data(),
                                      scratch.counts.data(), scratch.counted.data(),
                                      scratch.top_logprobs.data()};
  };
  ASSERT_TRUE(sample_token(params, {.logits = logits, .history = history}, scratch));
  const auto first = memory();
  for (uint32_t position = 0; position < 50; ++position)
    ASSERT_TRUE(sample_token(params, {.logits = logits, .history = history, .position = position},
                             scratch));
  EXPECT_EQ(memory(), first);
}

}  // namespace
}  // namespace kapitsa::sample
