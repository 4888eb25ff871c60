// The reference encoders: decoding what they write must come close to the input, by a bound that
// follows from the width of the codes.
#include "weights/codec.h"
#include "weights/quantise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace kapitsa::weights {
namespace {

struct Case {
  DType dtype;
  double max_error;  // of one value, as a share of the largest magnitude of its block
};

std::vector<float> round_trip(DType dtype, const std::vector<float>& values) {
  const auto blocks = quantise(dtype, values);
  EXPECT_TRUE(blocks.ok());
  std::vector<float> decoded(values.size());
  EXPECT_TRUE(dequantise(dtype, *blocks, decoded).ok());
  return decoded;
}

class QuantiseTest : public ::testing::TestWithParam<Case> {};

TEST_P(QuantiseTest, error_stays_below_the_step) {
  constexpr double kHalfStep = 0x1p-25;  // of subnormal f16 numbers
  const Case& c = GetParam();
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.1f, 1.0f);
  std::vector<float> values(256 * 16);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = normal(random) * std::exp2(static_cast<float>(i / 256 % 8) - 6.0f);
  const std::vector<float> decoded = round_trip(c.dtype, values);
  const auto block = static_cast<size_t>(dtype_info(c.dtype).block_elements);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i / block * block);
    double largest = 0;
    for (auto it = begin; it != begin + static_cast<std::ptrdiff_t>(block); ++it)
      largest = std::max(largest, std::fabs(static_cast<double>(*it)));
    ASSERT_LE(std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(values[i])),
              c.max_error * largest + kHalfStep)
        << i;
  }
}

TEST_P(QuantiseTest, zeros_stay_zero) {
  const std::vector<float> zeros(512, 0.0f);
  EXPECT_THAT(round_trip(GetParam().dtype, zeros), ::testing::Each(0.0f));
}

TEST_P(QuantiseTest, constant_rows_keep_their_value) {
  for (const float value : {-3.0f, 0.5f}) {
    const std::vector<float> values(512, value);
    for (const float decoded : round_trip(GetParam().dtype, values))
      ASSERT_NEAR(decoded, value, std::fabs(value) * 0.02f);
  }
}

TEST_P(QuantiseTest, encoding_what_was_decoded_changes_little) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(512);
  for (float& value : values)
    value = uniform(random);
  const std::vector<float> once = round_trip(GetParam().dtype, values);
  const std::vector<float> twice = round_trip(GetParam().dtype, once);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(once[i], twice[i], GetParam().max_error);
}

// Affine types lose half a step of range / (codes - 1), symmetric ones up to a whole step at the
// end of the shorter side; K types lose a little more by rounding their scales and mins.
INSTANTIATE_TEST_SUITE_P(
    AllTypes, QuantiseTest,
    ::testing::Values(Case{DType::bf16, 1.0 / 256}, Case{DType::f16, 1.0 / 2048},
                      Case{DType::q8_0, 0.51 / 127}, Case{DType::q4_0, 1.01 / 8},
                      Case{DType::q5_0, 1.01 / 16}, Case{DType::q4_1, 1.02 / 15},
                      Case{DType::q5_1, 1.02 / 31}, Case{DType::q4_k, 1.4 / 15},
                      Case{DType::q5_k, 1.8 / 31}, Case{DType::q6_k, 1.3 / 32}),
    [](const auto& test) { return std::string(dtype_info(test.param.dtype).name); });

TEST(QuantiseTypeTest, type_without_an_encoder_is_named) {
  const std::vector<float> values(256);
  const auto blocks = quantise(DType::q2_k, values);
  ASSERT_FALSE(blocks.ok());
  EXPECT_EQ(blocks.error().code, ErrorCode::unsupported);
  EXPECT_THAT(blocks.error().message, ::testing::HasSubstr("q2_k"));
}

TEST(QuantiseTypeTest, f32_is_a_copy) {
  const std::vector<float> values = {1.5f, -0.0f, 3e-40f};
  EXPECT_EQ(round_trip(DType::f32, values), values);
}

}  // namespace
}  // namespace kapitsa::weights
