#include "base/q8_block.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

namespace kapitsa {
namespace {

using Values = std::array<float, kQ8Values>;

float value(const Q8Block& block, size_t i) {
  return f16_to_f32(block.scale) * static_cast<float>(block.codes[i]);
}

TEST(Q8Block, has_known_codes) {
  Values x = {};
  x[0] = 127.0F;
  x[1] = -127.0F;
  x[2] = 0.5F;  // ties go to even
  x[3] = 1.5F;
  x[4] = -2.5F;
  x[5] = -63.51F;
  const Q8Block block = q8_block(x.data());
  EXPECT_EQ(block.scale, f32_to_f16(1.0F));
  const int8_t expected[] = {127, -127, 0, 2, -2, -64, 0};
  for (size_t i = 0; i < std::size(expected); ++i)
    EXPECT_EQ(block.codes[i], expected[i]) << i;
}

TEST(Q8Block, is_within_half_a_step_of_every_value) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (const float size : {1e-3F, 1.0F, 3e4F}) {
    Values x;
    for (float& v : x)
      v = size * uniform(random);
    const Q8Block block = q8_block(x.data());
    const float step = f16_to_f32(block.scale);
    for (size_t i = 0; i < x.size(); ++i) {
      // The scale has 11 bits, so that the largest value may lie a little beyond code 127.
      EXPECT_LE(std::fabs(value(block, i) - x[i]), 0.57F * step) << size << ", " << i;
    }
  }
}

TEST(Q8Block, keeps_zeros_and_flushes_what_the_scale_cannot_hold) {
  for (const float tiny : {0.0F, 1e-30F}) {
    Values x;
    x.fill(tiny);
    const Q8Block block = q8_block(x.data());
    EXPECT_EQ(value(block, 7), 0.0F);
  }
  // A subnormal scale is far from largest / 127: codes stop at 127.
  Values x;
  x.fill(1.1e-5F);
  EXPECT_EQ(q8_block(x.data()).codes[0], 127);
}

TEST(Q8Block, is_nan_as_a_whole_when_one_value_is_no_number) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (size_t at = 0; at < 32; ++at) {
      Values x;
      x.fill(1.0F);
      x[at] = bad;
      EXPECT_TRUE(std::isnan(value(q8_block(x.data()), 31 - at))) << at;
    }
  }
}

TEST(Q8Block, is_infinite_or_nan_beyond_the_range_of_its_scale) {
  Values x;
  x.fill(1e8F);
  EXPECT_FALSE(std::isfinite(value(q8_block(x.data()), 0)));
}

}  // namespace
}  // namespace kapitsa
