// The noise against published vectors, our own pinned bits, double-precision libm and the Gumbel
// distribution.
#include "base/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <numbers>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace kapitsa {
namespace {

using Words = std::vector<uint32_t>;

Words words(PhiloxWords p) {
  return {p.x, p.y, p.z, p.w};
}

// All r below 2^16, then ever wider steps that still visit every exponent.
template <typename F>
void for_many_bits(F&& f) {
  uint64_t r = 0;
  while (r < (uint64_t{1} << 32)) {
    f(static_cast<uint32_t>(r));
    r += r < (1u << 16) ? 1 : r < (1u << 24) ? 251 : 9973;
  }
  f(0xFFFFFFFFu);
}

double exact_gumbel(uint32_t r) {
  const double w = std::min((r + 0.5) * 0x1p-32, 1 - 0x1p-24);
  return -std::log(-std::log1p(-w));
}

// Known answers of the Random123 distribution for philox4x32 with 10 rounds.
TEST(Philox, matches_published_vectors) {
  EXPECT_EQ(words(philox4x32({0, 0, 0, 0}, 0, 0)),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u)),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      words(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0)),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, matches_the_pinned_bits) {
  std::ifstream file(KAPITSA_TEST_DATA "/unit/base/data/noise_vectors.txt");
  ASSERT_TRUE(file);
  int n_bits = 0, n_noise = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    in >> std::hex;
    std::string kind;
    in >> kind;
    uint32_t r = 0, expected_gumbel = 0;
    if (kind == "bits") {
      uint32_t expected_uniform = 0;
      ASSERT_TRUE(in >> r >> expected_uniform >> expected_gumbel) << line;
      EXPECT_EQ(std::bit_cast<uint32_t>(uniform_from_bits(r)), expected_uniform) << line;
      EXPECT_EQ(std::bit_cast<uint32_t>(gumbel_from_bits(r)), expected_gumbel) << line;
      ++n_bits;
    } else if (kind == "noise") {
      uint64_t seed = 0;
      uint32_t choice = 0, position = 0, token = 0, stream = 0;
      ASSERT_TRUE(in >> seed >> choice >> position >> token >> stream >> r >> expected_gumbel)
          << line;
      EXPECT_EQ(noise_bits(seed, choice, position, token, stream), r) << line;
      EXPECT_EQ(std::bit_cast<uint32_t>(gumbel(seed, choice, position, token, stream)),
                expected_gumbel)
          << line;
      ++n_noise;
    }
  }
  EXPECT_EQ(n_bits, 119);
  EXPECT_EQ(n_noise, 103);
}

TEST(Noise, log_poly_is_close_to_the_logarithm) {
  double worst = 0;
  for (uint32_t bits = 0x00800000u; bits < 0x7F800000u; bits += 4099) {
    const float x = std::bit_cast<float>(bits);
    const double exact = std::log(static_cast<double>(x));
    if (x != 1.0f) worst = std::max(worst, std::abs(log_poly(x) / exact - 1));
  }
  EXPECT_LT(worst, 0x1p-22);
  EXPECT_EQ(log_poly(1.0f), 0.0f);
}

TEST(Noise, exponential_keeps_relative_precision_at_the_winning_end) {
  double worst = 0, worst_small = 0;
  for_many_bits([&](uint32_t r) {
    const double w = uniform_from_bits(r);
    const double error = std::abs(exponential_from_bits(r) / -std::log1p(-w) - 1);
    worst = std::max(worst, error);
    if (w <= 0.25) worst_small = std::max(worst_small, error);
  });
  EXPECT_LT(worst, 0x1p-22);
  EXPECT_LT(worst_small, 0x1p-23);
}

TEST(Noise, gumbel_is_finite_monotone_and_below_its_bound) {
  float previous = 23.0f;
  double worst = 0;
  for_many_bits([&](uint32_t r) {
    const float g = gumbel_from_bits(r);
    ASSERT_TRUE(std::isfinite(g)) << r;
    ASSERT_LE(g, previous) << r;
    ASSERT_LE(g, gumbel_bound(std::countl_zero(r))) << r;
    previous = g;
    // Past 2^32 - 256 the f32 uniform is coarser than r.
    if (r < 0xFFFFFF00u) worst = std::max(worst, std::abs(g - exact_gumbel(r)));
  });
  EXPECT_NEAR(gumbel_from_bits(0), 33 * std::numbers::ln2, 1e-5);
  EXPECT_NEAR(gumbel_from_bits(~0u), -std::log(24 * std::numbers::ln2), 1e-5);
  EXPECT_LT(worst, 0.02);
}

// The f32 uniform rounds r to 24 bits, so only E near its rounded w is comparable to 1e-6.
TEST(Noise, gumbel_of_the_rounded_uniform_is_close_to_libm) {
  double worst = 0;
  for_many_bits([&](uint32_t r) {
    const double w = uniform_from_bits(r);
    worst = std::max(worst, std::abs(gumbel_from_bits(r) + std::log(-std::log1p(-w))));
  });
  EXPECT_LT(worst, 2e-6);
}

TEST(Noise, gumbel_has_the_gumbel_distribution) {
  constexpr int n = 1'000'000;
  std::vector<double> sample;
  sample.reserve(n);
  for (uint32_t position = 0; position < 100; ++position)
    for (uint32_t token = 0; token < n / 100; ++token)
      sample.push_back(gumbel(1234, 0, position, token, kStreamDraw));
  std::sort(sample.begin(), sample.end());
  double mean = 0, square = 0, distance = 0;
  for (int i = 0; i < n; ++i) {
    const double g = sample[static_cast<size_t>(i)];
    mean += g / n;
    square += g * g / n;
    const double cdf = std::exp(-std::exp(-g));
    distance = std::max({distance, std::abs(cdf - double(i) / n), std::abs(cdf - (i + 1.0) / n)});
  }
  const double variance = std::numbers::pi * std::numbers::pi / 6;
  // Four standard errors for the moments; the Kolmogorov-Smirnov bound at p = 0.001.
  EXPECT_NEAR(mean, std::numbers::egamma, 4 * std::sqrt(variance / n));
  EXPECT_NEAR(square - mean * mean, variance, 4 * std::sqrt(4.4 * variance * variance / n));
  EXPECT_LT(distance, 1.95 / std::sqrt(double(n)));
}

TEST(Noise, every_coordinate_changes_the_bits) {
  std::set<uint32_t> seen;
  seen.insert(noise_bits(5, 0, 10, 100, 0));
  seen.insert(noise_bits(6, 0, 10, 100, 0));
  seen.insert(noise_bits(5 | uint64_t{1} << 32, 0, 10, 100, 0));
  seen.insert(noise_bits(5, 1, 10, 100, 0));
  seen.insert(noise_bits(5, 0, 11, 100, 0));
  seen.insert(noise_bits(5, 0, 10, 101, 0));
  seen.insert(noise_bits(5, 0, 10, 104, 0));
  seen.insert(noise_bits(5, 0, 10, 100, 1));
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Noise, coin_is_uniform_and_inside_the_open_interval) {
  constexpr int n = 100'000;
  std::vector<int> bins(20);
  for (uint32_t position = 0; position < n; ++position) {
    const float c = coin(99, 0, position, kStreamCoin);
    ASSERT_GT(c, 0.0f);
    ASSERT_LT(c, 1.0f);
    ++bins[static_cast<size_t>(c * 20)];
  }
  double chi_square = 0;
  for (const int count : bins)
    chi_square += std::pow(count - n / 20, 2) / (n / 20);
  EXPECT_LT(chi_square, 43.8);  // 19 degrees of freedom, p = 0.001
}

}  // namespace
}  // namespace kapitsa
