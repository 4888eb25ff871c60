// What load_model says about checkpoints that are wrong: one line that names the file, the key or
// tensor, what was expected and what was found. Models are one layer of zeros.
#include "base/file.h"
#include "model/arch.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "weights/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>

namespace kapitsa::model {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Shapes = std::map<std::string, std::vector<int64_t>>;

std::vector<std::byte> zeros(const std::vector<int64_t>& shape) {
  const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return std::vector<std::byte>(static_cast<size_t>(n) * sizeof(float));
}

// Zeros, but for the last value.
std::vector<std::byte> nans(const std::vector<int64_t>& shape) {
  std::vector<std::byte> bytes = zeros(shape);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  return bytes;
}

class LoadTest : public ::testing::Test {
protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("kapitsa_load_") + info->test_suite_name()) / info->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What load_model answers; "" for a success.
  std::string error_of(const std::filesystem::path& path) {
    const auto file = weights::open_checkpoint(path);
    EXPECT_TRUE(file.ok()) << file.error().message;
    if (!file) return "";
    const auto model = load_model(*file, {});
    if (model) return "";
    EXPECT_THAT(model.error().message, StartsWith(path.string() + ": "));
    EXPECT_THAT(model.error().message, Not(HasSubstr("\n")));
    return model.error().message;
  }

  std::filesystem::path folder_;
};

// ---- GGUF: llama ----

class GgufLoadTest : public LoadTest {
protected:
  std::string error() {
    test::GgufWriter writer;  // all tensors zero, but for the one that is broken
    writer.set("general.architecture", architecture_);
    for (const auto& [key, value] : counts_)
      writer.set(prefix_ + key, value);
    for (const auto& [key, value] : numbers_)
      writer.set(prefix_ + key, value);
    for (const auto& [name, shape] : tensors_)
      writer.add_tensor(name, DType::f32, shape, name == broken_ ? nans(shape) : zeros(shape));
    writer.write(folder_ / "m.gguf");
    return error_of(folder_ / "m.gguf");
  }

  std::string broken_;
  std::string architecture_ = "llama";
  std::string prefix_ = "llama.";
  std::map<std::string, uint32_t> counts_ = {
      {"block_count", 1},          {"context_length", 64},      {"embedding_length", 8},
      {"feed_forward_length", 12}, {"attention.head_count", 4}, {"attention.head_count_kv", 2},
  };
  std::map<std::string, float> numbers_ = {{"attention.layer_norm_rms_epsilon", 1e-5F}};
  Shapes tensors_ = {
      {"token_embd.weight", {5, 8}},        {"output_norm.weight", {8}},
      {"blk.0.attn_norm.weight", {8}},      {"blk.0.attn_q.weight", {8, 8}},
      {"blk.0.attn_k.weight", {4, 8}},      {"blk.0.attn_v.weight", {4, 8}},
      {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_norm.weight", {8}},
      {"blk.0.ffn_gate.weight", {12, 8}},   {"blk.0.ffn_up.weight", {12, 8}},
      {"blk.0.ffn_down.weight", {8, 12}},
  };
};

TEST_F(GgufLoadTest, the_unchanged_model_loads) {
  EXPECT_EQ(error(), "");
}

TEST_F(GgufLoadTest, a_sliding_window_reaches_every_attention_step) {
  counts_["attention.sliding_window"] = 48;
  ASSERT_EQ(error(), "");
  const auto file = weights::open_checkpoint(folder_ / "m.gguf");
  ASSERT_TRUE(file.ok());
  const auto model = load_model(*file, {});
  ASSERT_TRUE(model.ok());
  int n_windows = 0;
  for (const plan::Step& step : model->plan.routines()[0].steps) {
    const auto* attention = std::get_if<plan::Attention>(&step.op);
    if (attention != nullptr && attention->attend.window == 48) ++n_windows;
  }
  EXPECT_EQ(n_windows, 1);
}

TEST_F(GgufLoadTest, a_norm_that_is_no_number_is_named) {
  broken_ = "blk.0.ffn_norm.weight";
  EXPECT_THAT(error(), HasSubstr("tensor 'blk.0.ffn_norm.weight': value 7: expected a finite"));
}

TEST_F(GgufLoadTest, a_layer_that_is_not_counted_is_named) {
  tensors_["blk.1.attn_norm.weight"] = {8};
  EXPECT_THAT(error(), HasSubstr("llama.block_count: expected at least 2 because of tensor "
                                 "'blk.1.attn_norm.weight', found 1"));
}

TEST_F(GgufLoadTest, unknown_architecture_lists_what_is_known) {
  architecture_ = "gpt2";
  EXPECT_THAT(error(), HasSubstr("architecture 'gpt2' is not supported; this build knows: "));
  EXPECT_THAT(error(), HasSubstr("llama, "));
}

TEST_F(GgufLoadTest, every_missing_tensor_is_named_with_its_shape) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    if (name == "token_embd.weight") continue;  // tells the vocabulary's size: below
    tensors_ = whole;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "' is missing, expected with shape ("));
  }
}

TEST_F(GgufLoadTest, missing_embedding_is_named) {
  tensors_.erase("token_embd.weight");
  EXPECT_THAT(error(), HasSubstr("expected a tensor token_embd.weight of (vocabulary, 8)"));
}

TEST_F(GgufLoadTest, every_wrong_shape_is_told_with_both) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    tensors_ = whole;
    tensors_[name].back() += 1;
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "': expected shape ("));
    EXPECT_THAT(error(), HasSubstr(shape.size() == 1 ? "(8), found (9)"
                                                     : std::to_string(shape[1] + 1) + ")"));
  }
}

TEST_F(GgufLoadTest, transposed_matrix_is_refused) {
  tensors_["blk.0.ffn_down.weight"] = {12, 8};
  EXPECT_THAT(error(), HasSubstr("expected shape (8, 12), found (12, 8)"));
}

TEST_F(GgufLoadTest, vector_in_place_of_a_matrix_is_refused) {
  tensors_["blk.0.attn_q.weight"] = {64};
  EXPECT_THAT(error(), HasSubstr("expected shape (8, 8), found (64)"));
}

TEST_F(GgufLoadTest, every_missing_key_is_named) {
  const auto whole = counts_;
  for (const auto& [key, value] : whole) {
    if (key == "attention.head_count_kv") continue;  // as many as heads: another shape
    counts_ = whole;
    counts_.erase(key);
    EXPECT_THAT(error(), HasSubstr("llama." + key));
  }
  counts_ = whole;
  numbers_.clear();
  EXPECT_THAT(error(), HasSubstr("llama.attention.layer_norm_rms_epsilon"));
}

TEST_F(GgufLoadTest, every_count_of_zero_or_of_billions_is_refused) {
  const auto whole = counts_;
  for (const auto& [key, value] : whole) {
    for (const uint32_t wrong : {0U, 4'000'000'000U}) {
      counts_ = whole;
      counts_[key] = wrong;
      EXPECT_THAT(error(), HasSubstr("llama." + key));
      EXPECT_THAT(error(), HasSubstr("found the integer " + std::to_string(wrong)));
    }
  }
}

TEST_F(GgufLoadTest, epsilon_out_of_range_is_refused) {
  numbers_["attention.layer_norm_rms_epsilon"] = -1e-5F;
  EXPECT_THAT(error(), HasSubstr("layer_norm_rms_epsilon"));
  numbers_["attention.layer_norm_rms_epsilon"] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error(), HasSubstr("layer_norm_rms_epsilon"));
}

TEST_F(GgufLoadTest, heads_that_do_not_divide_are_refused) {
  counts_["attention.head_count_kv"] = 3;
  EXPECT_THAT(error(),
              HasSubstr("llama.attention.head_count_kv: expected a divisor of 4, found 3"));
  counts_["attention.head_count_kv"] = 2;
  counts_["embedding_length"] = 10;
  EXPECT_THAT(error(),
              EndsWith("llama.embedding_length: expected a multiple of 4 heads, found 10"));
}

TEST_F(GgufLoadTest, odd_rotary_size_is_refused) {
  counts_["rope.dimension_count"] = 1;
  EXPECT_THAT(error(), HasSubstr("llama.rope.dimension_count: expected an even number"));
}

TEST_F(GgufLoadTest, llama_with_experts_is_refused) {
  counts_["expert_count"] = 8;
  EXPECT_THAT(error(), HasSubstr("llama.expert_count: expected 0 (a dense model), found 8"));
}

// ---- GGUF: qwen3moe ----

class GgufExpertsTest : public GgufLoadTest {
protected:
  GgufExpertsTest() {
    architecture_ = "qwen3moe";
    prefix_ = "qwen3moe.";
    counts_["expert_count"] = 3;
    counts_["expert_used_count"] = 2;
    counts_["expert_feed_forward_length"] = 6;
    for (const char* name : {"gate", "up", "down"})
      tensors_.erase(std::string("blk.0.ffn_") + name + ".weight");
    tensors_["blk.0.attn_q_norm.weight"] = {2};
    tensors_["blk.0.attn_k_norm.weight"] = {2};
    tensors_["blk.0.ffn_gate_inp.weight"] = {3, 8};
    tensors_["blk.0.ffn_gate_exps.weight"] = {3, 6, 8};
    tensors_["blk.0.ffn_up_exps.weight"] = {3, 6, 8};
    tensors_["blk.0.ffn_down_exps.weight"] = {3, 8, 6};
  }
};

TEST_F(GgufExpertsTest, the_unchanged_model_loads) {
  EXPECT_EQ(error(), "");
}

TEST_F(GgufExpertsTest, fewer_experts_than_the_metadata_says_are_refused) {
  tensors_["blk.0.ffn_up_exps.weight"] = {2, 6, 8};
  EXPECT_THAT(error(), HasSubstr("expected shape (3, 6, 8), found (2, 6, 8)"));
}

TEST_F(GgufExpertsTest, more_experts_used_than_there_are_is_refused) {
  counts_["expert_used_count"] = 4;
  EXPECT_THAT(error(), HasSubstr("qwen3moe.expert_used_count"));
}

TEST_F(GgufExpertsTest, missing_head_norm_is_named) {
  tensors_.erase("blk.0.attn_k_norm.weight");
  EXPECT_THAT(error(), HasSubstr("tensor 'blk.0.attn_k_norm.weight' is missing"));
}

// ---- Hugging Face: qwen3_moe ----

class FolderLoadTest : public LoadTest {
protected:
  FolderLoadTest() {
    const std::string layer = "model.layers.0.";
    tensors_ = {{"model.embed_tokens.weight", {5, 8}},
                {"model.norm.weight", {8}},
                {layer + "input_layernorm.weight", {8}},
                {layer + "post_attention_layernorm.weight", {8}},
                {layer + "self_attn.q_proj.weight", {8, 8}},
                {layer + "self_attn.k_proj.weight", {4, 8}},
                {layer + "self_attn.v_proj.weight", {4, 8}},
                {layer + "self_attn.o_proj.weight", {8, 8}},
                {layer + "self_attn.q_norm.weight", {2}},
                {layer + "self_attn.k_norm.weight", {2}},
                {layer + "mlp.gate.weight", {3, 8}}};
    for (const char* expert : {"0", "1", "2"}) {
      const std::string prefix = layer + "mlp.experts." + expert;
      tensors_[prefix + ".gate_proj.weight"] = {6, 8};
      tensors_[prefix + ".up_proj.weight"] = {6, 8};
      tensors_[prefix + ".down_proj.weight"] = {8, 6};
    }
  }

  // Two shards, with experts in the second.
  std::string error() {
    std::string config;
    for (const auto& [key, value] : config_)
      config.append(config.empty() ? "{" : ", ").append("\"" + key + "\": " + value);
    EXPECT_TRUE(write_file_atomic(folder_ / "config.json", config + "}").ok());
    const std::string names[] = {"model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors"};
    test::SafetensorsWriter shards[2];
    std::string index;
    for (const auto& [name, shape] : tensors_) {
      const size_t shard = name.find(".experts.") == std::string::npos ? 0 : 1;
      const DType dtype = name == odd_one_ ? DType::bf16 : DType::f32;
      auto data = zeros(shape);
      if (dtype == DType::bf16) data.resize(data.size() / 2);
      shards[shard].add(name, dtype, shape, data);
      index.append(index.empty() ? "" : ", ").append("\"" + name + "\": \"" + names[shard] + "\"");
    }
    for (const size_t i : {size_t{0}, size_t{1}})
      shards[i].write(folder_ / names[i]);
    EXPECT_TRUE(write_file_atomic(folder_ / "model.safetensors.index.json",
                                  "{\"weight_map\": {" + index + "}}")
                    .ok());
    return error_of(folder_);
  }

  std::map<std::string, std::string> config_ = {{"model_type", "\"qwen3_moe\""},
                                                {"hidden_size", "8"},
                                                {"num_hidden_layers", "1"},
                                                {"num_attention_heads", "4"},
                                                {"num_key_value_heads", "2"},
                                                {"moe_intermediate_size", "6"},
                                                {"num_experts", "3"},
                                                {"num_experts_per_tok", "2"},
                                                {"rms_norm_eps", "1e-6"},
                                                {"max_position_embeddings", "64"}};
  Shapes tensors_;
  std::string odd_one_;  // a tensor stored as bf16
};

TEST_F(FolderLoadTest, the_unchanged_model_loads) {
  EXPECT_EQ(error(), "");
}

TEST_F(FolderLoadTest, unknown_model_type_lists_what_is_known) {
  config_["model_type"] = "\"gpt2\"";
  EXPECT_THAT(error(), HasSubstr("architecture 'gpt2' is not supported; this build knows: "));
  config_.erase("model_type");
  EXPECT_THAT(error(), HasSubstr("model_type"));
}

TEST_F(FolderLoadTest, missing_keys_are_named) {
  const auto whole = config_;
  for (const auto& [key, value] : whole) {
    if (key == "num_key_value_heads") continue;
    config_ = whole;
    config_.erase(key);
    EXPECT_THAT(error(), HasSubstr(key));
  }
}

TEST_F(FolderLoadTest, value_of_the_wrong_type_is_refused) {
  config_["hidden_size"] = "\"8\"";
  EXPECT_THAT(error(), HasSubstr("hidden_size"));
}

TEST_F(FolderLoadTest, newer_name_of_the_number_of_experts_is_read) {
  config_.erase("num_experts");
  config_["num_local_experts"] = "3";
  EXPECT_EQ(error(), "");
}

TEST_F(FolderLoadTest, expert_missing_from_a_shard_is_named) {
  tensors_.erase("model.layers.0.mlp.experts.1.up_proj.weight");
  EXPECT_THAT(error(), HasSubstr("tensor 'model.layers.0.mlp.experts.1.up_proj.weight' is missing, "
                                 "expected with shape (6, 8)"));
}

TEST_F(FolderLoadTest, expert_of_another_type_is_refused) {
  odd_one_ = "model.layers.0.mlp.experts.2.down_proj.weight";
  EXPECT_THAT(error(), HasSubstr("'" + odd_one_ + "': expected f32 like the others"));
}

TEST_F(FolderLoadTest, scales_of_other_formats_than_nvfp4_are_refused) {
  const std::string matrix = "model.layers.0.self_attn.k_proj.weight";
  tensors_[matrix + "_scale"] = {4, 1};
  EXPECT_THAT(error(), HasSubstr("tensor '" + matrix +
                                 "_scale': weights with scales are supported "
                                 "as NVFP4 of ModelOpt"));
}

TEST_F(FolderLoadTest, compressed_tensors_are_refused_by_name) {
  const std::string matrix = "model.layers.0.self_attn.k_proj.weight";
  tensors_.erase(matrix);
  tensors_[matrix + "_packed"] = {4, 4};
  EXPECT_THAT(error(), HasSubstr("tensor '" + matrix + "_packed': the format compressed-tensors"));
}

TEST_F(FolderLoadTest, missing_output_matrix_of_an_untied_model_is_named) {
  config_["tie_word_embeddings"] = "false";
  EXPECT_THAT(error(), HasSubstr("tensor 'lm_head.weight' is missing, expected with shape (5, 8)"));
  tensors_["lm_head.weight"] = {5, 8};
  EXPECT_EQ(error(), "");
}

TEST_F(FolderLoadTest, what_the_architecture_does_not_compute_is_refused) {
  const auto refused = [this](const char* key, const char* value, const char* reason) {
    const auto whole = config_;
    config_[key] = value;
    EXPECT_THAT(error(), HasSubstr(reason)) << key << " " << value;
    config_ = whole;
  };
  refused("hidden_act", R"("gelu")", "hidden_act: expected silu or swish, found gelu");
  refused("attention_bias", "true", "self_attn.q_proj.bias' is missing");
  refused("mlp_bias", "true", "mlp_bias: expected false, found true");
  refused("use_sliding_window", "true", "use_sliding_window: expected false, found true");
  refused("layer_types", R"(["sliding_attention"])",
          "layer_types: expected full_attention, found sliding_attention");
  refused("vocab_size", "6",
          "vocab_size: expected 5 like the rows of model.embed_tokens.weight, found 6");
  refused(
      "quantization_config", R"({"quant_method": "gptq", "bits": 4})",
      "quant_method: expected weights that are plain or quantised by MLX or ModelOpt, found gptq");
  config_["hidden_act"] = R"("swish")";
  config_["vocab_size"] = "5";
  EXPECT_EQ(error(), "");
}

TEST_F(FolderLoadTest, odd_rope_scaling_is_refused) {
  const auto error_with = [this](const char* scaling) {
    config_["rope_scaling"] = scaling;
    return error();
  };
  EXPECT_EQ(error_with(R"({"rope_type": "default"})"), "");
  EXPECT_THAT(error_with(R"({"factor": 4.0})"), HasSubstr("rope_scaling.factor: expected 1"));
  EXPECT_THAT(error_with(R"({"type": "linear", "factor": 0})"), HasSubstr("rope_scaling.factor"));
  EXPECT_THAT(error_with(R"({"type": "linear"})"), HasSubstr("rope_scaling.factor"));
  EXPECT_THAT(error_with("3"), HasSubstr("rope_scaling: expected an object"));
  EXPECT_THAT(error_with(R"({"rope_type": "llama3", "factor": 8})"), HasSubstr("low_freq_factor"));
  EXPECT_THAT(
      error_with(
          R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 64})"),
      EndsWith("high_freq_factor: expected more than low_freq_factor, found 4"));
  EXPECT_THAT(error_with(R"({"rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
                             "original_max_position_embeddings": 64})"),
              HasSubstr("rope_scaling.mscale: expected no such key"));
  EXPECT_THAT(error_with(R"({"rope_type": "yarn", "factor": 4.0, "truncate": false,
                             "original_max_position_embeddings": 64})"),
              EndsWith("rope_scaling.truncate: expected true, found false"));
}

TEST_F(FolderLoadTest, unknown_rope_scaling_is_refused) {
  config_["rope_scaling"] = R"({"rope_type": "longrope", "factor": 4.0})";
  EXPECT_THAT(error(), HasSubstr("rope_scaling.rope_type: expected default, linear, llama3, "
                                 "yarn or proportional, found longrope"));
}

TEST_F(FolderLoadTest, dense_layers_between_sparse_ones_are_refused) {
  config_["decoder_sparse_step"] = "2";
  EXPECT_THAT(error(), HasSubstr("decoder_sparse_step: expected 1"));
}

}  // namespace
}  // namespace kapitsa::model
