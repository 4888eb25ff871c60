// Naming a model: aliases, paths, and messages that say what to do.
#include "hub/catalog.h"

#include <gtest/gtest.h>

#include <fstream>

namespace kapitsa::hub {
namespace {

class Catalog : public testing::Test {
protected:
  void SetUp() override {
    home_ =
        std::filesystem::temp_directory_path() /
        ("kapitsa_catalog_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
         testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(home_);
    std::filesystem::create_directories(home_);
  }
  void TearDown() override { std::filesystem::remove_all(home_); }

  std::filesystem::path touch(const std::filesystem::path& relative) {
    const auto path = home_ / relative;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path;
  }

  std::filesystem::path home_;
};

TEST_F(Catalog, holds_the_seven_names_once_each) {
  for (const char* alias : {"35b", "27b", "flash-next", "bolt", "flint", "clover", "smollm2"}) {
    EXPECT_NE(find_in_catalog(alias), nullptr) << alias;
  }
  EXPECT_EQ(catalog().size(), 7U);
}

TEST_F(Catalog, an_alias_is_its_file_in_the_data_folder) {
  const auto path = touch("models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  const auto found = resolve_model("smollm2", home_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, path);
}

TEST_F(Catalog, an_alias_without_a_file_says_how_to_get_it) {
  const auto found = resolve_model("smollm2", home_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::not_found);
  EXPECT_NE(found.error().message.find("not downloaded"), std::string::npos);
  EXPECT_NE(found.error().message.find("fetch-model smollm2"), std::string::npos);
}

TEST_F(Catalog, an_alias_that_cannot_run_yet_says_so) {
  const auto found = resolve_model("35b", home_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
}

TEST_F(Catalog, a_path_is_itself) {
  const auto path = touch("elsewhere/model.gguf");
  const auto found = resolve_model(path.string(), home_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, path);
}

TEST_F(Catalog, an_unknown_name_lists_the_known_ones) {
  const auto found = resolve_model("gpt-9", home_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::not_found);
  EXPECT_NE(found.error().message.find("gpt-9"), std::string::npos);
  EXPECT_NE(found.error().message.find("smollm2"), std::string::npos);
  EXPECT_EQ(found.error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kapitsa::hub
