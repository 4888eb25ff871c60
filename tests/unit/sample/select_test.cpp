#include "sample/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kapitsa::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Few different values, so that ties are everywhere.
std::vector<float> tied_logits(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> logits(n);
  for (float& x : logits)
    x = static_cast<float>(random() % 23) - 11;
  return logits;
}

std::vector<Candidate> all_sorted(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i)
    all.push_back({logits[i], static_cast<int32_t>(i)});
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  });
  return all;
}

std::vector<int32_t> tokens(std::span<const Candidate> candidates) {
  std::vector<int32_t> result;
  for (const Candidate& c : candidates)
    result.push_back(c.token);
  return result;
}

TEST(Select, the_peak_is_the_first_of_the_largest) {
  for (const size_t n : std::initializer_list<size_t>{1, 2, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    const auto logits = tied_logits(n, static_cast<unsigned>(n));
    const Peak peak = find_peak(logits);
    EXPECT_FALSE(peak.has_nan);
    EXPECT_EQ(peak.best.token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    EXPECT_EQ(peak.best.logit, *std::max_element(logits.begin(), logits.end()));
  }
}

TEST(Select, minus_zero_and_zero_are_equal) {
  std::vector<float> logits(3000, -1.0f);
  logits[5] = -0.0f;
  logits[2500] = 0.0f;
  EXPECT_EQ(find_peak(logits).best.token, 5);
}

TEST(Select, a_nan_is_found_wherever_it_is) {
  for (const size_t at : std::initializer_list<size_t>{0, 1, 1000, 1024, 2047, 2056}) {
    std::vector<float> logits(2057, 1.0f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(find_peak(logits).has_nan) << at;
  }
}

TEST(Select, exp_is_close_to_libm_and_ends_flat) {
  double worst = 0;
  for (float x = 0; x > -87; x -= 0.00037f)
    worst = std::max(worst, std::abs(exp_negative(x) / std::exp(static_cast<double>(x)) - 1));
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(exp_negative(0.0f), 1.0f);
  EXPECT_EQ(exp_negative(-0.0f), 1.0f);
  EXPECT_LT(exp_negative(-kInfinity), 2e-38f);
  EXPECT_EQ(exp_negative(-1000.0f), exp_negative(-kInfinity));
}

TEST(Select, sum_of_exp_is_close_to_double) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (const size_t n : std::initializer_list<size_t>{1, 15, 1024, 20011}) {
    std::vector<float> logits(n);
    for (float& x : logits)
      x = normal(random);
    logits[n / 2] = -kInfinity;
    logits[0] = 20;
    double exact = 0;
    for (const float x : logits)
      exact += std::exp((static_cast<double>(x) - 20) * 0.7);
    EXPECT_NEAR(sum_of_exp(logits, 20, 0.7f) / exact, 1, 1e-6);
  }
}

TEST(Select, take_first_equals_a_full_sort) {
  std::vector<Candidate> out;
  for (const size_t n : std::initializer_list<size_t>{1, 100, 2000, 30000}) {
    const auto logits = tied_logits(n, 7);
    const auto expected = tokens(all_sorted(logits));
    for (const size_t k : {size_t{0}, size_t{1}, size_t{40}, size_t{1500}, n}) {
      take_first(logits, k, out);
      const size_t kept = std::min(k, n);
      ASSERT_EQ(tokens(out), std::vector<int32_t>(expected.begin(),
                                                  expected.begin() + static_cast<int64_t>(kept)));
    }
  }
}

TEST(Select, take_first_keeps_minus_infinity_last) {
  std::vector<Candidate> out;
  take_first(std::vector<float>{-kInfinity, 1, -kInfinity, 2}, 3, out);
  EXPECT_EQ(tokens(out), (std::vector<int32_t>{3, 1, 0}));
}

TEST(Select, the_nucleus_is_the_fewest_first_tokens_with_the_mass) {
  std::mt19937 random(5);
  std::vector<Candidate> out;
  for (const float spread : {0.01f, 1.0f, 3.0f, 30.0f}) {
    for (const float scale : {0.1f, 1.0f, 5.0f}) {
      std::normal_distribution<float> normal(0, spread);
      std::vector<float> logits(5000);
      for (float& x : logits)
        x = normal(random);
      const auto sorted = all_sorted(logits);
      double total = 0;
      for (const Candidate& c : sorted)
        total += std::exp((static_cast<double>(c.logit) - sorted[0].logit) * scale);
      for (const float top_p : {0.0f, 0.31f, 0.9003f, 0.999f}) {
        size_t n = 0;
        double sum = 0;
        do {
          sum += std::exp((static_cast<double>(sorted[n++].logit) - sorted[0].logit) * scale);
        } while (sum < top_p * total);
        take_nucleus(logits, sorted[0].logit, scale, top_p, out);
        ASSERT_EQ(out.size(), n) << spread << " " << scale << " " << top_p;
        ASSERT_EQ(out.back().token, sorted[n - 1].token);
      }
    }
  }
}

}  // namespace
}  // namespace kapitsa::sample
