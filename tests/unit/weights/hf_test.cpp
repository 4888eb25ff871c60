// Model folders: config.json as metadata, sharded weights, and MLX quantisation settings.
#include "base/file.h"
#include "support/safetensors_writer.h"
#include "weights/hf.h"
#include "weights/json_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

namespace kapitsa::weights {
namespace {

using test::SafetensorsWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Checkpoint> metadata_of(std::string_view text) {
  Checkpoint checkpoint(Format::hf, "folder");
  KAPITSA_TRY(add_json_metadata(text, "config.json", "", checkpoint));
  return checkpoint;
}

TEST(JsonMetadataTest, nested_keys_are_joined) {
  const auto c = metadata_of(R"({
    "model_type": "qwen3_5",
    "text_config": {"hidden_size": 2560, "rope_parameters": {"rope_theta": 1e7, "type": null}},
    "tie_word_embeddings": false
  })");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(*c->string("model_type"), "qwen3_5");
  EXPECT_EQ(*c->integer("text_config.hidden_size"), 2560);
  EXPECT_EQ(*c->number("text_config.rope_parameters.rope_theta"), 1e7);
  EXPECT_FALSE(c->has("text_config.rope_parameters.type"));
  EXPECT_FALSE(*c->boolean("tie_word_embeddings"));
}

TEST(JsonMetadataTest, arrays_of_one_kind_are_one_value) {
  const auto c = metadata_of(R"({"eos": [1, 2], "one": 3, "mix": [1, 0.5], "s": ["a", "b"],
                                 "b": [true, false], "none": []})");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_THAT(*c->integers("eos"), ElementsAre(1, 2));
  EXPECT_THAT(*c->integers("one"), ElementsAre(3));
  EXPECT_THAT(*c->numbers("mix"), ElementsAre(1.0, 0.5));
  EXPECT_THAT(*c->strings("s"), ElementsAre("a", "b"));
  EXPECT_THAT(*c->booleans("b"), ElementsAre(true, false));
  EXPECT_TRUE(c->integers("none")->empty());
}

TEST(JsonMetadataTest, items_of_other_arrays_have_their_own_keys) {
  const auto c = metadata_of(R"({"a": [1, null, {"b": "x"}, [2, 3]]})");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_FALSE(c->has("a"));
  EXPECT_EQ(*c->integer("a.0"), 1);
  EXPECT_FALSE(c->has("a.1"));
  EXPECT_EQ(*c->string("a.2.b"), "x");
  EXPECT_THAT(*c->integers("a.3"), ElementsAre(2, 3));
}

TEST(JsonMetadataTest, infinity_of_python_is_a_large_number_outside_strings) {
  const auto c = metadata_of(R"({"limit": [0.0, Infinity], "low": -Infinity,
                                 "s": "Infinity \" Infinity"})");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_THAT(*c->numbers("limit"), ElementsAre(0.0, 1.79e308));
  EXPECT_EQ(*c->number("low"), -1.79e308);
  EXPECT_EQ(*c->string("s"), "Infinity \" Infinity");
}

TEST(JsonMetadataTest, ambiguous_keys_and_other_values_are_refused) {
  EXPECT_THAT(metadata_of(R"({"a.b": 1, "a": {"b": 2}})").error().message,
              HasSubstr("config.json: expected each key once, found 'a.b' again"));
  EXPECT_THAT(metadata_of("[1]").error().message, HasSubstr("expected a JSON object"));
  EXPECT_THAT(metadata_of("{\"a\": NaN}").error().message, HasSubstr("offset 6"));
}

TEST(JsonMetadataTest, long_key_is_refused) {
  const std::string key(600, 'k');
  EXPECT_THAT(metadata_of("{\"" + key + "\": {\"a\": 1}}").error().message,
              HasSubstr("joined keys of at most 512 bytes"));
}

class HfFolderTest : public ::testing::Test {
protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / "kapitsa_hf" / info->name();
    std::filesystem::create_directories(folder_);
    write("config.json", R"({"model_type": "llama"})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const char* name, std::string_view text) {
    ASSERT_TRUE(write_file_atomic(folder_ / name, text).ok());
  }
  // A file that holds one f32 tensor.
  void write_tensor(const char* file, const char* tensor, const char* format = "pt") {
    const float value = 1;
    SafetensorsWriter()
        .add(tensor, DType::f32, {1}, std::as_bytes(std::span(&value, 1)))
        .metadata("format", format)
        .write(folder_ / file);
  }

  std::filesystem::path folder_;
};

TEST_F(HfFolderTest, single_file_model_is_read) {
  write("generation_config.json", R"({"temperature": 0.6, "eos_token_id": [1, 2]})");
  write_tensor("model.safetensors", "lm_head.weight");
  const auto model = read_hf(folder_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->format(), Format::hf);
  EXPECT_EQ(*model->string("model_type"), "llama");
  EXPECT_EQ(*model->number("generation_config.temperature"), 0.6);
  EXPECT_EQ(model->find("lm_head.weight")->data.size(), 4u);
}

TEST_F(HfFolderTest, sharded_model_is_read) {
  write_tensor("model-00001-of-00002.safetensors", "a");
  write_tensor("model-00002-of-00002.safetensors", "b");
  write("model.safetensors.index.json",
        R"({"metadata": {"total_size": 8}, "weight_map": {
            "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  const auto model = read_hf(folder_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 2u);
  EXPECT_NE(model->find("b"), nullptr);
}

TEST_F(HfFolderTest, index_that_lies_is_refused) {
  write_tensor("model-1.safetensors", "a");
  const auto error_with_map = [&](std::string_view map) {
    write("model.safetensors.index.json", "{\"weight_map\": " + std::string(map) + "}");
    const auto model = read_hf(folder_);
    return model.ok() ? "no error" : model.error().message;
  };
  EXPECT_EQ(error_with_map(R"({"a": "model-1.safetensors"})"), "no error");
  EXPECT_THAT(error_with_map(R"({"b": "model-1.safetensors"})"),
              HasSubstr("tensor 'b': expected it in 'model-1.safetensors', found no such tensor"));
  EXPECT_THAT(error_with_map(R"({"a": "../model-1.safetensors"})"), HasSubstr("the same folder"));
  EXPECT_THAT(error_with_map(R"({"a": "/etc/passwd"})"), HasSubstr("the same folder"));
  EXPECT_THAT(error_with_map(R"({"a": ".."})"), HasSubstr("the same folder"));
  EXPECT_THAT(error_with_map(R"({"a": ""})"), HasSubstr("the same folder"));
  EXPECT_THAT(error_with_map(R"({"a": 3})"), HasSubstr("found another value"));
  EXPECT_THAT(error_with_map("[]"), HasSubstr("expected 'weight_map' as a JSON object"));
  EXPECT_THAT(error_with_map(R"({"a": "absent.safetensors"})"), HasSubstr("absent.safetensors"));
}

TEST_F(HfFolderTest, missing_files_are_named) {
  EXPECT_THAT(read_hf(folder_).error().message, HasSubstr("expected model.safetensors or"));
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_EQ(read_hf(folder_).error().code, ErrorCode::not_found);
}

TEST_F(HfFolderTest, mlx_is_recognised_by_settings_or_by_the_header) {
  write_tensor("model.safetensors", "a", "mlx");
  EXPECT_EQ(read_hf(folder_)->format(), Format::mlx);
  write_tensor("model.safetensors", "a", "pt");
  EXPECT_EQ(read_hf(folder_)->format(), Format::hf);
  write("config.json", R"({"quantization": {"group_size": 64, "bits": 4}})");
  EXPECT_EQ(read_hf(folder_)->format(), Format::mlx);
}

// A checkpoint whose module `m` has these tensors; 128 input values, 4-bit groups of 64 by default.
class MlxModuleTest : public ::testing::Test {
protected:
  void add(const char* name, DType dtype, std::vector<int64_t> shape) {
    checkpoint_.add({name, dtype, std::move(shape), {}});
  }
  void add_affine() {
    add("m.weight", DType::u32, {8, 16});
    add("m.scales", DType::bf16, {8, 2});
    add("m.biases", DType::bf16, {8, 2});
  }
  void configure(std::string_view quantization) {
    const std::string text = "{\"quantization\": " + std::string(quantization) + "}";
    ASSERT_TRUE(add_json_metadata(text, "config.json", "", checkpoint_).ok());
  }
  std::string error() {
    const auto module = find_mlx_module(checkpoint_, "m");
    return module.ok() ? "no error" : module.error().message;
  }

  Checkpoint checkpoint_{Format::mlx, "folder"};
};

TEST_F(MlxModuleTest, settings_of_the_model_apply) {
  configure(R"({"group_size": 64, "bits": 4})");
  add_affine();
  const auto module = find_mlx_module(checkpoint_, "m");
  ASSERT_TRUE(module.ok()) << module.error().message;
  ASSERT_TRUE(module->has_value());
  EXPECT_EQ((*module)->quant, (MlxQuant{4, 64, MlxMode::affine}));
  EXPECT_EQ((*module)->weight, checkpoint_.find("m.weight"));
  EXPECT_EQ((*module)->biases, checkpoint_.find("m.biases"));
}

TEST_F(MlxModuleTest, settings_of_the_module_override) {
  configure(
      R"({"group_size": 32, "bits": 4, "mode": "mxfp4", "m": {"bits": 8, "group_size": 64}})");
  add("m.weight", DType::u32, {8, 32});
  add("m.scales", DType::f16, {8, 2});
  add("m.biases", DType::f16, {8, 2});
  const auto module = find_mlx_module(checkpoint_, "m");
  ASSERT_TRUE(module.ok()) << module.error().message;
  EXPECT_EQ((*module)->quant, (MlxQuant{8, 64, MlxMode::affine}));
}

TEST_F(MlxModuleTest, module_without_scales_is_not_quantised) {
  configure(R"({"group_size": 64, "bits": 4, "m": false})");
  add("m.weight", DType::bf16, {8, 128});
  const auto module = find_mlx_module(checkpoint_, "m");
  ASSERT_TRUE(module.ok()) << module.error().message;
  EXPECT_FALSE(module->has_value());
}

TEST_F(MlxModuleTest, floating_point_modes_have_byte_scales_and_no_biases) {
  configure(R"({"mode": "nvfp4"})");
  add("m.weight", DType::u32, {3, 8, 16});
  add("m.scales", DType::u8, {3, 8, 8});
  const auto module = find_mlx_module(checkpoint_, "m");
  ASSERT_TRUE(module.ok()) << module.error().message;
  EXPECT_EQ((*module)->quant, (MlxQuant{4, 16, MlxMode::nvfp4}));
  EXPECT_EQ((*module)->biases, nullptr);
}

TEST_F(MlxModuleTest, unknown_settings_are_refused) {
  configure(R"({"group_size": 64, "bits": 4, "mode": "magic"})");
  add_affine();
  EXPECT_THAT(error(), HasSubstr("expected affine, mxfp4, mxfp8 or nvfp4, found 'magic'"));
}

TEST_F(MlxModuleTest, unknown_combination_is_refused) {
  configure(R"({"group_size": 64, "bits": 7})");
  add_affine();
  EXPECT_THAT(error(), HasSubstr("found affine with 7 bits and groups of 64"));
}

TEST_F(MlxModuleTest, tensors_that_do_not_fit_are_refused) {
  configure(R"({"group_size": 32, "bits": 4})");
  add_affine();
  EXPECT_THAT(error(), HasSubstr("module 'm': expected rows of 8 words for 2 groups of 32 values"));
}

TEST_F(MlxModuleTest, global_scales_are_refused) {
  configure(R"({"mode": "nvfp4"})");
  add("m.weight", DType::u32, {3, 8, 16});
  add("m.scales", DType::u8, {3, 8, 8});
  add("m.global_scale", DType::f32, {3});
  EXPECT_THAT(error(), HasSubstr("module 'm': global scales of nvfp4 are not supported"));
}

TEST_F(MlxModuleTest, missing_biases_are_refused) {
  configure(R"({"group_size": 64, "bits": 4})");
  add("m.weight", DType::u32, {8, 16});
  add("m.scales", DType::bf16, {8, 2});
  EXPECT_THAT(error(), HasSubstr("expected biases, found none"));
}

// NVFP4 of ModelOpt: a matrix `w` of 8 rows of 32 values.
class Nvfp4MatrixTest : public ::testing::Test {
protected:
  Nvfp4MatrixTest() {
    add("w", DType::u8, {8, 16});
    add("w_scale", DType::u8, {8, 2});
    add("w_scale_2", DType::f32, {}, std::as_bytes(std::span(&scale_, 1)));
  }
  void add(const char* name, DType dtype, std::vector<int64_t> shape,
           std::span<const std::byte> data = {}) {
    checkpoint_.add({name, dtype, std::move(shape), data});
  }
  std::string error(int64_t out = 8, int64_t in = 32) {
    const auto matrix = find_nvfp4_matrix(checkpoint_, "w", out, in);
    return matrix.ok() ? "no error" : matrix.error().message;
  }

  float scale_ = 0.25F;
  Checkpoint checkpoint_{Format::hf, "folder"};
};

TEST_F(Nvfp4MatrixTest, codes_and_both_scales_are_found) {
  const auto matrix = find_nvfp4_matrix(checkpoint_, "w", 8, 32);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  ASSERT_TRUE(matrix->has_value());
  EXPECT_EQ((*matrix)->weight, checkpoint_.find("w"));
  EXPECT_EQ((*matrix)->scales, checkpoint_.find("w_scale"));
  EXPECT_EQ((*matrix)->scale, 0.25F);
}

TEST_F(Nvfp4MatrixTest, matrix_without_scales_is_not_quantised) {
  add("plain", DType::bf16, {8, 32});
  const auto matrix = find_nvfp4_matrix(checkpoint_, "plain", 8, 32);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_FALSE(matrix->has_value());
}

TEST_F(Nvfp4MatrixTest, shapes_that_do_not_fit_are_refused) {
  EXPECT_THAT(error(8, 64), HasSubstr("tensor 'w': expected NVFP4 codes u8 of shape (8, 32), found "
                                      "(8, 16)"));
  add("v", DType::u8, {8, 16});
  add("v_scale", DType::u8, {8, 4});
  add("v_scale_2", DType::f32, {}, std::as_bytes(std::span(&scale_, 1)));
  const auto matrix = find_nvfp4_matrix(checkpoint_, "v", 8, 32);
  ASSERT_FALSE(matrix.ok());
  EXPECT_THAT(matrix.error().message,
              HasSubstr("tensor 'v_scale': expected bytes of shape (8, 2)"));
}

TEST_F(Nvfp4MatrixTest, a_scale_that_is_no_number_is_refused) {
  scale_ = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error(), HasSubstr("tensor 'w_scale_2': expected a finite number"));
}

}  // namespace
}  // namespace kapitsa::weights
