// Which reader a path gets.
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "weights/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace kapitsa::weights {
namespace {

using test::GgufWriter;
using ::testing::HasSubstr;

class OpenTest : public ::testing::Test {
protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / "kapitsa_open" / info->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(OpenTest, gguf_file_opens_by_itself_or_by_its_folder) {
  GgufWriter().set("k", "v").write(folder_ / "m.gguf");
  EXPECT_EQ(*open_checkpoint(folder_ / "m.gguf")->string("k"), "v");
  EXPECT_EQ(*open_checkpoint(folder_)->string("k"), "v");
}

TEST_F(OpenTest, folder_of_a_split_model_opens) {
  for (const uint16_t i : {uint16_t{0}, uint16_t{1}})
    GgufWriter()
        .set("split.no", i)
        .set("split.count", uint16_t{2})
        .write(folder_ / (i == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf"));
  const auto model = open_checkpoint(folder_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(*model->integer("split.count"), 2);
}

TEST_F(OpenTest, config_makes_a_folder_a_hugging_face_model) {
  ASSERT_TRUE(write_file_atomic(folder_ / "config.json", "{\"model_type\": \"llama\"}").ok());
  test::SafetensorsWriter().write(folder_ / "model.safetensors");
  const auto model = open_checkpoint(folder_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->format(), Format::hf);
}

TEST_F(OpenTest, safetensors_file_stands_for_its_folder) {
  test::SafetensorsWriter().write(folder_ / "model.safetensors");
  EXPECT_THAT(open_checkpoint(folder_ / "model.safetensors").error().message,
              HasSubstr("config.json"));
  ASSERT_TRUE(write_file_atomic(folder_ / "config.json", "{\"model_type\": \"llama\"}").ok());
  const auto model = open_checkpoint(folder_ / "model.safetensors");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->path(), folder_);
  EXPECT_EQ(open_checkpoint(folder_ / "absent.safetensors").error().code, ErrorCode::not_found);
}

TEST_F(OpenTest, folder_without_one_clear_model_is_an_error) {
  EXPECT_THAT(open_checkpoint(folder_).error().message, HasSubstr("found neither"));
  GgufWriter().write(folder_ / "a.gguf");
  GgufWriter().write(folder_ / "b.gguf");
  EXPECT_THAT(open_checkpoint(folder_).error().message,
              HasSubstr("found 2 (a.gguf, b.gguf, ...); name the file"));
  EXPECT_EQ(open_checkpoint(folder_ / "absent").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace kapitsa::weights
