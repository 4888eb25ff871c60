// Block diffusion over any architecture, by the keys of its file.
#include "model/arch.h"
#include "support/checkpoint_files.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kapitsa::model {
namespace {

weights::Checkpoint with_keys(const char* name, int64_t block, int64_t mask_token) {
  weights::Checkpoint file = test::read_test_checkpoint(test::golden_path(name));
  EXPECT_TRUE(file.set("diffusion.block_length", block));
  if (mask_token >= 0) {
    EXPECT_TRUE(file.set("diffusion.mask_token_id", mask_token));
  }
  return file;
}

std::string error_of(const weights::Checkpoint& file) {
  const auto model = load_model(file, {});
  return model ? std::string() : model.error().message;
}

TEST(DiffusionKeys, make_blocks_of_any_attention_model) {
  for (const char* name :
       {"llama_f32.gguf", "qwen3_bf16.gguf", "laguna_bf16.gguf", "qwen3_moe_mlx"}) {
    const weights::Checkpoint file = with_keys(name, 16, 3);
    const auto model = load_model(file, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_TRUE(model->diffusion.has_value()) << name;
    EXPECT_EQ(model->diffusion->block, 16);
    const auto& rule = std::get<MaskedDiffusion>(model->diffusion->rule);
    EXPECT_EQ(rule.mask_token, 3);
    EXPECT_EQ(rule.steps, 16);
    EXPECT_FALSE(rule.edit_threshold.has_value());
    int32_t n_attentions = 0;
    for (const plan::Step& step : model->plan.routines()[0].steps) {
      const auto* attention = std::get_if<plan::Attention>(&step.op);
      if (attention == nullptr) continue;
      ++n_attentions;
      EXPECT_EQ(attention->attend.mask, plan::Mask::block) << name << " " << step.label;
      EXPECT_EQ(attention->attend.block, 16);
    }
    EXPECT_EQ(n_attentions, model->n_layers);
    EXPECT_TRUE(plan::validate(model->plan).ok()) << name;
  }
}

TEST(DiffusionKeys, without_them_a_model_writes_token_by_token) {
  const auto file = test::read_test_checkpoint(test::golden_path("llama_f32.gguf"));
  const auto model = load_model(file, {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_FALSE(model->diffusion.has_value());
}

TEST(DiffusionKeys, every_key_is_read) {
  weights::Checkpoint file = with_keys("llama_f32.gguf", 8, 3);
  file.set("diffusion.threshold", 0.75);
  file.set("diffusion.steps", int64_t{5});
  file.set("diffusion.shift_logits", true);
  file.set("diffusion.edit_threshold", 0.25);
  file.set("diffusion.edit_steps", int64_t{9});
  const auto model = load_model(file, {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto& rule = std::get<MaskedDiffusion>(model->diffusion->rule);
  EXPECT_FLOAT_EQ(static_cast<float>(rule.threshold), 0.75F);
  EXPECT_EQ(rule.steps, 5);
  EXPECT_TRUE(rule.shift_logits);
  EXPECT_EQ(rule.edit_threshold, 0.25);
  EXPECT_EQ(rule.edit_steps, 9);
}

TEST(DiffusionKeys, what_does_not_fit_is_one_line) {
  EXPECT_NE(error_of(with_keys("llama_f32.gguf", 12, 3)).find("power of two"), std::string::npos);
  EXPECT_NE(error_of(with_keys("llama_f32.gguf", 256, 3)).find("up to 128"), std::string::npos);
  EXPECT_NE(error_of(with_keys("llama_f32.gguf", 8, -1)).find("mask_token_id"), std::string::npos);
  EXPECT_NE(error_of(with_keys("llama_f32.gguf", 8, 5000)).find("5000"), std::string::npos);
  EXPECT_NE(error_of(with_keys("qwen3_5_bf16.gguf", 8, 3)).find("recurrent"), std::string::npos);
}

TEST(DiffusionKeys, layouts_that_are_not_known_are_refused) {
  for (const char* name : {"llada2_moe_hf", "diffusion_gemma_hf"}) {
    weights::Checkpoint file = test::read_test_checkpoint(test::golden_path(name));
    file.set_format(weights::Format::mlx);
    EXPECT_NE(error_of(file).find("in MLX format is not supported"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace kapitsa::model
