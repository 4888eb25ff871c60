// MLX's group formats against what MLX itself decodes (tools/golden/mlx_vectors.py), bit for bit.
#include "base/file.h"
#include "base/half.h"
#include "weights/mlx_codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

namespace kapitsa::weights {
namespace {

std::string name_of(const MlxQuant& quant) {
  return fmt::format("mlx_{}_{}_{}", to_string(quant.mode), quant.bits, quant.group);
}

class MlxVectorTest : public ::testing::TestWithParam<MlxQuant> {};

TEST_P(MlxVectorTest, decodes_to_the_bits_of_mlx) {
  constexpr size_t kValues = 256;
  const MlxQuant& quant = GetParam();
  const auto path =
      std::filesystem::path(KAPITSA_TEST_DATA) / "unit/weights/data" / (name_of(quant) + ".bin");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const bool affine = quant.mode == MlxMode::affine;
  const size_t weight_bytes = kValues * static_cast<size_t>(quant.bits) / 8;
  const size_t scale_bytes = kValues / static_cast<size_t>(quant.group) * (affine ? 2 : 1);
  const size_t bias_bytes = affine ? scale_bytes : 0;
  const std::span<const std::byte> bytes = file->bytes();
  ASSERT_EQ(bytes.size(), weight_bytes + scale_bytes + bias_bytes + kValues * sizeof(float));
  uint32_t expected[kValues];
  std::memcpy(expected, bytes.last(sizeof expected).data(), sizeof expected);

  std::vector<float> out(kValues);
  dequantise_mlx(quant, bytes.first(weight_bytes), bytes.subspan(weight_bytes, scale_bytes),
                 bytes.subspan(weight_bytes + scale_bytes, bias_bytes), DType::f16, out);
  for (size_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), expected[i])
        << i << ": " << out[i] << " not " << std::bit_cast<float>(expected[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllModes, MlxVectorTest,
    ::testing::Values(MlxQuant{2, 64, MlxMode::affine}, MlxQuant{3, 32, MlxMode::affine},
                      MlxQuant{4, 64, MlxMode::affine}, MlxQuant{5, 128, MlxMode::affine},
                      MlxQuant{6, 64, MlxMode::affine}, MlxQuant{8, 128, MlxMode::affine},
                      MlxQuant{4, 32, MlxMode::mxfp4}, MlxQuant{8, 32, MlxMode::mxfp8},
                      MlxQuant{4, 16, MlxMode::nvfp4}),
    [](const auto& test) { return name_of(test.param); });

TEST(MlxCodecTest, only_the_documented_combinations_are_valid) {
  EXPECT_TRUE(is_valid({4, 64, MlxMode::affine}));
  EXPECT_FALSE(is_valid({7, 64, MlxMode::affine}));
  EXPECT_FALSE(is_valid({1, 64, MlxMode::affine}));
  EXPECT_FALSE(is_valid({4, 48, MlxMode::affine}));
  EXPECT_FALSE(is_valid({4, 64, MlxMode::mxfp4}));
  EXPECT_FALSE(is_valid({4, 32, MlxMode::mxfp8}));
  EXPECT_FALSE(is_valid({4, 32, MlxMode::nvfp4}));
}

TEST(MlxCodecTest, e4m3_has_a_sign_and_nan) {
  EXPECT_EQ(e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_f32(0xB8), -1.0f);
  EXPECT_EQ(e4m3_to_f32(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_TRUE(std::signbit(e4m3_to_f32(0x80)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xFF)));
}

TEST(MlxCodecTest, bf16_scales_are_read_as_such) {
  const uint16_t scale = f32_to_bf16(0.5f);
  const uint16_t bias = f32_to_bf16(-1.0f);
  std::vector<std::byte> codes(32, std::byte{3});
  std::vector<float> out(32);
  dequantise_mlx({8, 32, MlxMode::affine}, codes, std::as_bytes(std::span(&scale, 1)),
                 std::as_bytes(std::span(&bias, 1)), DType::bf16, out);
  EXPECT_THAT(out, ::testing::Each(0.5f));
}

}  // namespace
}  // namespace kapitsa::weights
