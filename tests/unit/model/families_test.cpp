// What nemotron_h, muse_glimmer, laguna and the block-diffusion families refuse: each case is a
// tiny checkpoint of tests/golden with one change in its config.json, or, for GGUF, with tensors of
// zeros.
#include "base/file.h"
#include "model/arch.h"
#include "support/checkpoint_files.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"
#include "weights/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace kapitsa::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

// ---- config.json ----

struct Change {
  const char* folder;  // of tests/golden/data
  const char* from;    // once in config.json
  const char* to;
  const char* error;  // part of it
};
constexpr Change kChanges[] = {
    // nemotron_h
    {"nemotron_h_moe_hf", "\"moe\"", "\"conv\"", "layers_block_type: expected layers of Mamba"},
    {"nemotron_h_hf", "M-*-", "M-*?", "hybrid_override_pattern: expected layers of Mamba"},
    {"nemotron_h_hf", "hybrid_override_pattern", "other", "layers_block_type"},
    {"nemotron_h_moe_hf", "\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size"},
    {"nemotron_h_moe_hf", "layer_norm_epsilon", "other", "layer_norm_epsilon"},
    {"nemotron_h_moe_hf", "\"mamba_num_heads\"", "\"other\"", "mamba_num_heads"},
    {"nemotron_h_moe_hf", "\"n_groups\": 2", "\"n_groups\": 3",
     "n_groups: expected a divisor of 8"},
    {"nemotron_h_moe_hf", "\"conv_kernel\": 4", "\"conv_kernel\": 1", "conv_kernel: expected 2"},
    {"nemotron_h_moe_hf", "\"ssm_state_size\": 16", "\"ssm_state_size\": 8",
     "mixer.in_proj.weight': expected shape (168, 32), found (200, 32)"},
    {"nemotron_h_moe_hf", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
     "num_attention_heads: expected a multiple of 3"},
    {"nemotron_h_moe_hf", "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9",
     "num_experts_per_tok"},
    {"nemotron_h_moe_hf", "\"n_group\": 1", "\"n_group\": 3", "n_group: expected equal groups"},
    {"nemotron_h_moe_hf", "\"mlp_bias\": false", "\"mlp_bias\": true", "mlp_bias: expected false"},
    {"nemotron_h_moe_hf", "relu2", "gelu", "mlp_hidden_act: expected relu2, found gelu"},
    {"nemotron_h_moe_hf", "\"n_shared_experts\": 1", "\"moe_latent_size\": 16",
     "moe_latent_size: expected 0 (experts of the full width), found 16"},
    // muse_glimmer
    {"muse_glimmer_hf", "\"full_attention\"", "\"chunked\"",
     "text_config.layer_types: expected sliding_attention or full_attention, found chunked"},
    {"muse_glimmer_hf", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5",
     "text_config.layer_types: expected 5 layers, found 4"},
    {"muse_glimmer_hf", "\"sliding_window\": 20", "\"sliding_window\": 0", "sliding_window"},
    {"muse_glimmer_hf", "\"silu\"", "\"gelu\"",
     "hidden_activation: expected silu or swish, found gelu"},
    {"muse_glimmer_hf", "    0\n", "    1\n", "layer_rope_theta: expected 0 in layers of full"},
    // laguna
    {"laguna_hf", "\"dense\"", "\"wide\"", "mlp_layer_types: expected sparse or dense, found wide"},
    {"laguna_hf", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
     "num_attention_heads_per_layer: expected multiples of 3 key heads, found 2"},
    {"laguna_hf", "\"sliding_window\": 20", "\"sliding_window\": 0",
     "sliding_window: expected a number of tokens, found 0"},
    {"laguna_hf", "\"moe_router_logit_softcapping\": 0.0", "\"moe_router_logit_softcapping\": 3.0",
     "moe_router_logit_softcapping: expected 0"},
    {"laguna_hf", "\"yarn\"", "\"longrope\"", "full_attention.rope_type: expected default"},
    {"laguna_hf", "\"shared_expert_intermediate_size\"", "\"other\"",
     "shared_expert_intermediate_size"},
    // block diffusion
    {"sdar_moe_hf", "\"block_size\": 4", "\"block_size\": 6", "expected a power of two up to 128"},
    {"sdar_moe_hf", "\"mask_token_id\": 3", "\"mask_token_id\": 272", "expected an id below 272"},
    {"llada2_moe_hf", "\"sigmoid\"", "\"softmax\"", "score_function: expected sigmoid"},
    {"llada2_moe_hf", "\"use_qk_norm\": true", "\"use_qk_norm\": false", "use_qk_norm"},
    {"llada2_moe_hf", "\"n_group\": 4", "\"n_group\": 3", "n_group: expected equal groups"},
    {"llada2_moe_hf", "\"num_experts\": 8", "\"num_experts\": 12", "mlp.gate.weight"},
    {"diffusion_gemma_hf", "\"canvas_length\": 16", "\"canvas_length\": 512", "canvas_length"},
    {"diffusion_gemma_hf", "\"top_k_experts\": 2", "\"top_k_experts\": 9", "top_k_experts"},
    {"diffusion_gemma_hf", "\"moe_intermediate_size\": 16", "\"moe_intermediate_size\": 8",
     "gate_up_proj"},
    {"diffusion_gemma_hf", "\"proportional\"", "\"dynamic\"", "rope_type"},
};

TEST(FamilyConfig, every_change_is_told_in_one_line) {
  for (const Change& change : kChanges) {
    const std::filesystem::path source = test::golden_path(change.folder);
    const auto text = read_text_file(source / "config.json", 1 << 20);
    ASSERT_TRUE(text.ok()) << text.error().message;
    std::string config = *text;
    const size_t place = config.find(change.from);
    ASSERT_NE(place, std::string::npos) << change.from;
    config.replace(place, std::string_view(change.from).size(), change.to);
    const test::TemporaryFolder folder;
    std::filesystem::copy_file(source / "model.safetensors", folder.path() / "model.safetensors");
    ASSERT_TRUE(write_file_atomic(folder.path() / "config.json", config).ok());
    EXPECT_THAT(error_of(folder.path()), HasSubstr(change.error)) << change.to;
  }
}

// ---- GGUF ----

class NemotronGgufTest : public ::testing::Test {
protected:
  std::string error() {
    test::GgufWriter writer;
    writer.set("general.architecture", "nemotron_h_moe");
    for (const auto& [key, value] : counts_)
      writer.set("nemotron_h_moe." + key, value);
    writer.set("nemotron_h_moe.attention.head_count_kv", kv_heads_);
    writer.set("nemotron_h_moe.feed_forward_length", widths_);
    writer.set("nemotron_h_moe.attention.layer_norm_epsilon", 1e-5F);
    for (const auto& [name, shape] : tensors_) {
      const int64_t n =
          std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
      writer.add_f32(name, shape, std::vector<float>(static_cast<size_t>(n)));
    }
    writer.write(folder_.path() / "m.gguf");
    return error_of(folder_.path() / "m.gguf");
  }

  test::TemporaryFolder folder_;
  std::map<std::string, uint32_t> counts_ = {{"block_count", 3},
                                             {"context_length", 64},
                                             {"embedding_length", 8},
                                             {"attention.head_count", 4},
                                             {"attention.key_length", 2},
                                             {"expert_count", 3},
                                             {"expert_used_count", 2},
                                             {"expert_feed_forward_length", 6},
                                             {"expert_shared_feed_forward_length", 5},
                                             {"ssm.conv_kernel", 4},
                                             {"ssm.state_size", 4},
                                             {"ssm.group_count", 1},
                                             {"ssm.inner_size", 4},
                                             {"ssm.time_step_rank", 2}};
  std::vector<uint32_t> kv_heads_ = {0, 2, 0};
  std::vector<uint32_t> widths_ = {0, 0, 6};
  std::map<std::string, std::vector<int64_t>> tensors_ = {
      {"token_embd.weight", {5, 8}},
      {"output_norm.weight", {8}},
      {"output.weight", {5, 8}},
      {"blk.0.attn_norm.weight", {8}},
      {"blk.0.ssm_in.weight", {18, 8}},
      {"blk.0.ssm_conv1d.weight", {12, 4}},
      {"blk.0.ssm_conv1d.bias", {12}},
      {"blk.0.ssm_dt.bias", {2}},
      {"blk.0.ssm_a", {2, 1}},
      {"blk.0.ssm_d", {2, 1}},
      {"blk.0.ssm_norm.weight", {1, 4}},
      {"blk.0.ssm_out.weight", {8, 4}},
      {"blk.1.attn_norm.weight", {8}},
      {"blk.1.attn_q.weight", {8, 8}},
      {"blk.1.attn_k.weight", {4, 8}},
      {"blk.1.attn_v.weight", {4, 8}},
      {"blk.1.attn_output.weight", {8, 8}},
      {"blk.2.attn_norm.weight", {8}},
      {"blk.2.ffn_gate_inp.weight", {3, 8}},
      {"blk.2.exp_probs_b.bias", {3}},
      {"blk.2.ffn_up_exps.weight", {3, 6, 8}},
      {"blk.2.ffn_down_exps.weight", {3, 8, 6}},
      {"blk.2.ffn_up_shexp.weight", {5, 8}},
      {"blk.2.ffn_down_shexp.weight", {8, 5}},
  };
};

TEST_F(NemotronGgufTest, the_unchanged_model_loads) {
  EXPECT_EQ(error(), "");
}

TEST_F(NemotronGgufTest, every_missing_tensor_is_named_with_its_shape) {
  const auto whole = tensors_;
  for (const auto& [name, shape] : whole) {
    const bool optional = name == "output.weight" || name == "blk.0.ssm_conv1d.bias";
    if (optional || name == "token_embd.weight") continue;
    tensors_ = whole;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "' is missing, expected with shape ("));
  }
}

TEST_F(NemotronGgufTest, every_missing_count_is_named) {
  const auto whole = counts_;
  for (const auto& [key, value] : whole) {
    counts_ = whole;
    counts_.erase(key);
    EXPECT_THAT(error(), HasSubstr("nemotron_h_moe." + key));
  }
}

TEST_F(NemotronGgufTest, layers_of_the_prediction_head_are_not_the_trunks) {
  counts_["block_count"] = 4;
  counts_["nextn_predict_layers"] = 1;
  kv_heads_.push_back(2);
  widths_.push_back(6);
  EXPECT_EQ(error(), "");
  counts_["nextn_predict_layers"] = 4;
  EXPECT_THAT(error(), HasSubstr("nextn_predict_layers: expected fewer layers than block_count"));
}

TEST_F(NemotronGgufTest, arrays_that_do_not_fit_the_layers_are_refused) {
  kv_heads_ = {0, 2};
  EXPECT_THAT(error(), HasSubstr("nemotron_h_moe.attention.head_count_kv"));
  kv_heads_ = {0, 2, 4};
  EXPECT_THAT(error(), HasSubstr("head_count_kv: expected 0 or 2 in each layer, found 4"));
}

}  // namespace
}  // namespace kapitsa::model
