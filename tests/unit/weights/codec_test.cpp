// The block decoders against the reference's output, bit for bit. The vectors in data/ come from
// tools/golden/block_vectors.py: n blocks, then the f32 values that they decode to.
#include "base/file.h"
#include "base/half.h"
#include "weights/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

namespace kapitsa::weights {
namespace {

class CodecVectorTest : public ::testing::TestWithParam<DType> {};

TEST_P(CodecVectorTest, decodes_to_the_bits_of_the_reference) {
  const DTypeInfo& info = dtype_info(GetParam());
  const auto path = std::filesystem::path(KAPITSA_TEST_DATA) / "unit/weights/data" /
                    (std::string(info.name) + ".bin");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::span<const std::byte> bytes = file->bytes();
  const auto block_bytes = static_cast<size_t>(info.block_bytes);
  const auto elements = static_cast<size_t>(info.block_elements);
  const size_t n_blocks = bytes.size() / (block_bytes + elements * sizeof(float));
  ASSERT_GE(n_blocks, 5u);
  std::vector<uint32_t> expected(n_blocks * elements);
  std::memcpy(expected.data(), bytes.data() + n_blocks * block_bytes,
              expected.size() * sizeof(uint32_t));

  std::vector<float> values(expected.size());
  ASSERT_TRUE(dequantise(GetParam(), bytes.first(n_blocks * block_bytes), values).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), expected[i])
        << "block " << i / elements << " value " << i % elements << ": " << values[i] << " not "
        << std::bit_cast<float>(expected[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllTypes, CodecVectorTest,
    ::testing::Values(DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                      DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq1_s,
                      DType::iq1_m, DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs,
                      DType::iq3_s, DType::iq4_nl, DType::iq4_xs, DType::mxfp4, DType::nvfp4),
    [](const auto& test) { return std::string(dtype_info(test.param).name); });

TEST(CodecTest, plain_numbers_convert) {
  const double doubles[] = {0.1, -2.0, 1e300};
  float out[3];
  ASSERT_TRUE(dequantise(DType::f64, std::as_bytes(std::span(doubles)), out).ok());
  EXPECT_EQ(out[0], 0.1f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_TRUE(std::isinf(out[2]));
  const uint16_t halves[] = {f32_to_f16(1.5f), f32_to_f16(-0.25f), 0x7E00};
  ASSERT_TRUE(dequantise(DType::f16, std::as_bytes(std::span(halves)), out).ok());
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -0.25f);
  EXPECT_TRUE(std::isnan(out[2]));
  const float floats[] = {1, 2, 3};
  ASSERT_TRUE(dequantise(DType::f32, std::as_bytes(std::span(floats)), out).ok());
  EXPECT_THAT(out, ::testing::ElementsAre(1, 2, 3));
}

TEST(CodecTest, blocks_need_no_alignment) {
  alignas(8) std::byte bytes[1 + sizeof(BlockQ8_0)] = {};
  BlockQ8_0 block{f32_to_f16(0.5f), {}};
  block.qs[31] = -128;
  std::memcpy(bytes + 1, &block, sizeof block);
  float out[32];
  ASSERT_TRUE(dequantise(DType::q8_0, std::span(bytes).subspan(1), out).ok());
  EXPECT_EQ(out[31], -64.0f);
}

TEST(CodecTest, unsupported_type_is_named) {
  const std::byte values[4] = {};
  float out[1];
  const Status status = dequantise(DType::i32, values, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("i32"));
  EXPECT_FALSE(can_dequantise(DType::u8));
  EXPECT_FALSE(can_dequantise(DType::i32));
  EXPECT_FALSE(can_dequantise(DType::grouped));
  EXPECT_TRUE(can_dequantise(DType::iq1_m));
  EXPECT_TRUE(can_dequantise(DType::nvfp4));
  EXPECT_TRUE(can_dequantise(DType::f64));
}

TEST(CodecTest, scale_bytes_cover_their_whole_range) {
  EXPECT_EQ(e8m0_halved(0), 0x1p-128f);
  EXPECT_EQ(e8m0_halved(1), 0x1p-127f);
  EXPECT_EQ(e8m0_halved(2), 0x1p-126f);
  EXPECT_EQ(e8m0_halved(255), 0x1p127f);
  EXPECT_EQ(ue4m3_halved(0x38), 0.5f);          // 1.0
  EXPECT_EQ(ue4m3_halved(0x7E), 224.0f);        // 448, the largest
  EXPECT_EQ(ue4m3_halved(0x01), 0x1p-10f);      // 2^-9, the smallest
  EXPECT_EQ(ue4m3_halved(0x07), 7 * 0x1p-10f);  // the largest subnormal
  EXPECT_EQ(ue4m3_halved(0x7F), 0.0f);
}

}  // namespace
}  // namespace kapitsa::weights
