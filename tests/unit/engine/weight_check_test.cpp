// Damage that verify must find, in checkpoints that are made in memory.
#include "engine/weight_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace kapitsa::engine {
namespace {

using ::testing::HasSubstr;
using weights::Checkpoint;
using weights::Tensor;

std::string problem_of(DType dtype, const std::vector<std::byte>& blocks, int64_t n_values) {
  Checkpoint file(weights::Format::gguf, "test");
  EXPECT_TRUE(file.add(Tensor{.name = "t", .dtype = dtype, .shape = {n_values}, .data = blocks}));
  return check_weights(file, 1).problem;
}

TEST(WeightCheck, scales_that_codes_of_zero_hide_are_found) {
  std::vector<std::byte> mxfp4(2 * 17);
  mxfp4[0] = mxfp4[17] = std::byte{120};
  EXPECT_EQ(problem_of(DType::mxfp4, mxfp4, 64), "");
  for (const int exponent : {191, 255}) {
    mxfp4[17] = static_cast<std::byte>(exponent);
    EXPECT_THAT(problem_of(DType::mxfp4, mxfp4, 64), HasSubstr("scale of block 1"));
  }
  std::vector<std::byte> nvfp4(36);
  EXPECT_EQ(problem_of(DType::nvfp4, nvfp4, 64), "");
  nvfp4[3] = std::byte{0x7F};
  EXPECT_THAT(problem_of(DType::nvfp4, nvfp4, 64), HasSubstr("scale of block 0"));
}

TEST(WeightCheck, an_absurd_value_is_found) {
  std::vector<std::byte> bf16(4 * 2);
  EXPECT_EQ(problem_of(DType::bf16, bf16, 4), "");
  bf16[5] = std::byte{0x60};  // 2^65
  EXPECT_THAT(problem_of(DType::bf16, bf16, 4), HasSubstr("'t': value 2 is not finite or above"));
}

// A module of two rows of 32 values.
std::string mlx_problem_of(const char* mode, int bits, std::vector<std::byte> codes,
                           std::vector<std::byte> scales) {
  Checkpoint file(weights::Format::mlx, "test");
  EXPECT_TRUE(file.set("quantization.mode", std::string(mode)));
  const auto words = static_cast<int64_t>(codes.size() / 8);
  const auto groups = static_cast<int64_t>(scales.size() / 2);
  EXPECT_TRUE(file.set("quantization.bits", int64_t{bits}));
  EXPECT_TRUE(file.set("quantization.group_size", int64_t{32 / groups}));
  EXPECT_TRUE(file.add(
      Tensor{.name = "m.weight", .dtype = DType::u32, .shape = {2, words}, .data = codes}));
  EXPECT_TRUE(file.add(
      Tensor{.name = "m.scales", .dtype = DType::u8, .shape = {2, groups}, .data = scales}));
  return check_weights(file, 1).problem;
}

TEST(WeightCheck, scales_and_codes_of_mlx_modules_are_looked_at) {
  const std::vector<std::byte> four(32);
  const std::vector<std::byte> eight(64);
  const std::byte sound{120};
  const std::byte nan{255};
  EXPECT_EQ(mlx_problem_of("mxfp4", 4, four, {sound, sound}), "");
  EXPECT_THAT(mlx_problem_of("mxfp4", 4, four, {sound, nan}), HasSubstr("'m.scales': scale 1"));
  EXPECT_EQ(mlx_problem_of("nvfp4", 4, four, {sound, sound, sound, sound}), "");
  EXPECT_THAT(mlx_problem_of("nvfp4", 4, four, {sound, sound, nan, sound}),
              HasSubstr("'m.scales': scale 2"));
  EXPECT_EQ(mlx_problem_of("mxfp8", 8, eight, {sound, sound}), "");
  std::vector<std::byte> codes = eight;
  codes[33] = nan;
  EXPECT_THAT(mlx_problem_of("mxfp8", 8, codes, {sound, sound}), HasSubstr("'m.weight': value 33"));
}

}  // namespace
}  // namespace kapitsa::engine
