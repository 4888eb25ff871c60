// Random data is the same for the same name, and has the spread of trained weights in every type.
#include "weights/codec.h"
#include "weights/random_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kapitsa::weights {
namespace {

constexpr int64_t kValues = 1 << 16;

std::vector<std::byte> filled(std::string_view name, DType dtype,
                              RandomKind kind = RandomKind::weight) {
  std::vector<std::byte> bytes(static_cast<size_t>(*dtype_bytes(dtype, kValues)));
  RandomData random;
  EXPECT_TRUE(random.fill(name, dtype, kind, bytes).ok());
  return bytes;
}

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
  float lowest = 0.0F, highest = 0.0F;
};

Moments moments(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(kValues);
  EXPECT_TRUE(dequantise(dtype, bytes, values).ok());
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  const auto [low, high] = std::ranges::minmax_element(values);
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean), *low, *high};
}

TEST(RandomData, has_the_spread_of_weights_in_every_type) {
  for (const DType dtype : {DType::f32, DType::q4_0, DType::q8_0, DType::q4_k, DType::q6_k}) {
    const Moments found = moments(dtype, filled("blk.0.attn_q.weight", dtype));
    EXPECT_NEAR(found.mean, 0.0, 0.003) << dtype_info(dtype).name;
    EXPECT_NEAR(found.deviation, 0.02, 0.01) << dtype_info(dtype).name;
  }
}

TEST(RandomData, knows_norms_and_decays) {
  const Moments norm = moments(DType::f32, filled("n", DType::f32, RandomKind::norm));
  EXPECT_NEAR(norm.mean, 1.0, 0.01);
  const Moments decay = moments(DType::f32, filled("ssm_a", DType::f32, RandomKind::decay));
  EXPECT_GE(decay.lowest, -4.0F);
  EXPECT_LE(decay.highest, -0.5F);
}

TEST(RandomData, depends_on_the_name_alone) {
  EXPECT_EQ(filled("a", DType::q4_k), filled("a", DType::q4_k));
  EXPECT_NE(filled("a", DType::q4_k), filled("b", DType::q4_k));
  EXPECT_NE(filled("a", DType::f32), filled("b", DType::f32));
}

TEST(RandomData, refuses_other_types) {
  std::vector<std::byte> bytes(64);
  RandomData random;
  const Status status = random.fill("a", DType::bf16, RandomKind::weight, bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, testing::HasSubstr("bf16"));
}

}  // namespace
}  // namespace kapitsa::weights
