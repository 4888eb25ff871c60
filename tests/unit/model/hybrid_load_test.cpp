// What load_model makes of the Qwen hybrids and says about wrong ones: Qwen3.5 in GGUF with a
// multi-token-prediction head, and Qwen3.5-MoE as the folder of a multimodal model. One layer of
// each mixer, all zeros. What the numbers are is for the golden tests.
#include "base/file.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "unit/model/load_fixture.h"

namespace kapitsa::model {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// ---- GGUF: qwen35 ----

class Qwen35GgufTest : public LoadModelTest {
protected:
  Qwen35GgufTest() {
    const Shapes mixer = {{"attn_q.weight", {16, 8}},       {"attn_k.weight", {4, 8}},
                          {"attn_v.weight", {4, 8}},        {"attn_output.weight", {8, 8}},
                          {"attn_q_norm.weight", {4}},      {"attn_k_norm.weight", {4}},
                          {"nextn.eh_proj.weight", {8, 16}}};
    const Shapes layer = {{"attn_norm.weight", {8}},
                          {"post_attention_norm.weight", {8}},
                          {"ffn_gate.weight", {12, 8}},
                          {"ffn_up.weight", {12, 8}},
                          {"ffn_down.weight", {8, 12}}};
    for (const char* block : {"blk.0.", "blk.1.", "blk.2."})
      for (const auto& [name, shape] : layer)
        tensors_[block + name] = shape;
    for (const char* block : {"blk.1.", "blk.2."})
      for (const auto& [name, shape] : mixer)
        if (block[4] == '2' || name != "nextn.eh_proj.weight") tensors_[block + name] = shape;
    tensors_["blk.2.nextn.enorm.weight"] = {8};
    tensors_["blk.2.nextn.hnorm.weight"] = {8};
  }

  std::string error(bool mtp = true) {
    test::GgufWriter writer;
    writer.set("general.architecture", "qwen35");
    for (const auto& [key, value] : counts_)
      writer.set("qwen35." + key, value);
    writer.set("qwen35.attention.layer_norm_rms_epsilon", 1e-6F);
    if (!recurrent_.empty()) writer.set("qwen35.attention.recurrent_layers", recurrent_);
    for (const auto& [name, shape] : tensors_)
      writer.add_tensor(name, DType::f32, shape, zeros(shape));
    writer.write(folder_.path() / "m.gguf");
    return error_of(folder_.path() / "m.gguf", mtp);
  }

  std::map<std::string, uint32_t> counts_ = {
      {"block_count", 3},          {"nextn_predict_layers", 1},    {"context_length", 64},
      {"embedding_length", 8},     {"attention.head_count", 2},    {"attention.head_count_kv", 1},
      {"attention.key_length", 4}, {"feed_forward_length", 12},    {"ssm.conv_kernel", 4},
      {"ssm.state_size", 3},       {"ssm.group_count", 2},         {"ssm.time_step_rank", 4},
      {"ssm.inner_size", 8},       {"full_attention_interval", 2}, {"rope.dimension_count", 2}};
  std::vector<bool> recurrent_;
  Shapes tensors_ = {
      {"token_embd.weight", {5, 8}},
      {"output_norm.weight", {8}},
      {"output.weight", {5, 8}},
      {"blk.0.attn_qkv.weight", {20, 8}},
      {"blk.0.attn_gate.weight", {8, 8}},
      {"blk.0.ssm_beta.weight", {4, 8}},
      {"blk.0.ssm_alpha.weight", {4, 8}},
      {"blk.0.ssm_conv1d.weight", {20, 4}},
      {"blk.0.ssm_a", {4}},
      {"blk.0.ssm_dt.bias", {4}},
      {"blk.0.ssm_norm.weight", {2}},
      {"blk.0.ssm_out.weight", {8, 8}},
  };
};

TEST_F(Qwen35GgufTest, the_head_is_a_routine_only_when_asked_for) {
  ASSERT_EQ(error(), "");
  EXPECT_EQ(model_->n_layers, 2);
  ASSERT_EQ(model_->plan.routines().size(), 2U);
  EXPECT_EQ(model_->plan.routines()[1].name, "mtp");
  EXPECT_TRUE(model_->plan.features);
  const int64_t with_head = model_->n_parameters;
  ASSERT_EQ(error(/*mtp=*/false), "");
  EXPECT_EQ(model_->plan.routines().size(), 1U);
  EXPECT_FALSE(model_->plan.features);
  EXPECT_LT(model_->n_parameters, with_head);
}

TEST_F(Qwen35GgufTest, value_heads_are_tiled) {
  ASSERT_EQ(error(), "");
  const auto* mix = first<plan::DeltaMix>();
  ASSERT_NE(mix, nullptr);
  EXPECT_EQ(mix->head_map, plan::HeadMap::tiled);
  EXPECT_EQ(mix->gate, plan::Activation::silu);
}

TEST_F(Qwen35GgufTest, every_missing_tensor_is_named_with_its_shape) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    // They tell the vocabulary's size, a tied output, and that there is a head.
    if (name == "token_embd.weight" || name == "output.weight") continue;
    if (name == "blk.2.nextn.eh_proj.weight") continue;
    tensors_ = whole;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "' is missing, expected with shape ("));
  }
}

TEST_F(Qwen35GgufTest, every_wrong_shape_is_told) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    tensors_ = whole;
    tensors_[name].back() += 1;
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "': expected shape ("));
  }
}

TEST_F(Qwen35GgufTest, missing_keys_of_the_mixer_are_named) {
  const auto whole = counts_;
  for (const auto& [key, value] : whole) {
    if (!key.starts_with("ssm.")) continue;
    counts_ = whole;
    counts_.erase(key);
    EXPECT_THAT(error(), HasSubstr("qwen35." + key));
  }
}

TEST_F(Qwen35GgufTest, sizes_that_do_not_divide_are_refused) {
  counts_["ssm.inner_size"] = 9;
  EXPECT_THAT(error(),
              EndsWith("qwen35.ssm.inner_size: expected a multiple of 4 value heads, found 9"));
  counts_["ssm.inner_size"] = 8;
  counts_["ssm.group_count"] = 3;
  EXPECT_THAT(error(),
              EndsWith("qwen35.ssm.time_step_rank: expected a multiple of 3 key heads, found 4"));
}

TEST_F(Qwen35GgufTest, convolution_of_one_tap_is_refused) {
  counts_["ssm.conv_kernel"] = 1;
  EXPECT_THAT(error(), HasSubstr("qwen35.ssm.conv_kernel: expected 2 or more taps, found 1"));
}

TEST_F(Qwen35GgufTest, head_of_all_layers_is_refused) {
  counts_["nextn_predict_layers"] = 3;
  EXPECT_THAT(error(), HasSubstr("expected fewer layers than block_count, found 3"));
}

TEST_F(Qwen35GgufTest, listed_layers_win_over_the_interval) {
  counts_["full_attention_interval"] = 4;
  recurrent_ = {true, false, false};
  EXPECT_EQ(error(), "");
  recurrent_ = {true};
  EXPECT_THAT(error(), HasSubstr("attention.recurrent_layers: expected 2 layers, found 1"));
}

TEST_F(Qwen35GgufTest, experts_are_refused) {
  counts_["expert_count"] = 8;
  EXPECT_THAT(error(), HasSubstr("qwen35.expert_count: expected 0 (a dense model), found 8"));
}

// ---- Hugging Face: qwen3_5_moe ----

class Qwen35MoeFolderTest : public LoadModelTest {
protected:
  Qwen35MoeFolderTest() {
    const Shapes half = {{"input_layernorm.weight", {8}},
                         {"post_attention_layernorm.weight", {8}},
                         {"mlp.gate.weight", {3, 8}},
                         {"mlp.experts.gate_up_proj", {3, 12, 8}},
                         {"mlp.experts.down_proj", {3, 8, 6}},
                         {"mlp.shared_expert.gate_proj.weight", {5, 8}},
                         {"mlp.shared_expert.up_proj.weight", {5, 8}},
                         {"mlp.shared_expert.down_proj.weight", {8, 5}},
                         {"mlp.shared_expert_gate.weight", {1, 8}}};
    const std::string root = "model.language_model.";
    for (const std::string layer : {"layers.0.", "layers.1."})
      for (const auto& [name, shape] : half)
        tensors_[root + layer + name] = shape;
    const Shapes rest = {{"embed_tokens.weight", {5, 8}},
                         {"norm.weight", {8}},
                         {"layers.0.linear_attn.in_proj_qkv.weight", {20, 8}},
                         {"layers.0.linear_attn.in_proj_z.weight", {8, 8}},
                         {"layers.0.linear_attn.in_proj_b.weight", {4, 8}},
                         {"layers.0.linear_attn.in_proj_a.weight", {4, 8}},
                         {"layers.0.linear_attn.conv1d.weight", {20, 1, 4}},
                         {"layers.0.linear_attn.A_log", {4}},
                         {"layers.0.linear_attn.dt_bias", {4}},
                         {"layers.0.linear_attn.norm.weight", {2}},
                         {"layers.0.linear_attn.out_proj.weight", {8, 8}},
                         {"layers.1.self_attn.q_proj.weight", {16, 8}},
                         {"layers.1.self_attn.k_proj.weight", {4, 8}},
                         {"layers.1.self_attn.v_proj.weight", {4, 8}},
                         {"layers.1.self_attn.o_proj.weight", {8, 8}},
                         {"layers.1.self_attn.q_norm.weight", {4}},
                         {"layers.1.self_attn.k_norm.weight", {4}}};
    for (const auto& [name, shape] : rest)
      tensors_[root + name] = shape;
  }

  std::string error() {
    std::string text;
    for (const auto& [key, value] : config_)
      text.append(text.empty() ? "{" : ", ").append("\"" + key + "\": " + value);
    const std::string config = R"({"model_type": "qwen3_5_moe", "text_config": )" + text + "}}";
    EXPECT_TRUE(write_file_atomic(folder_.path() / "config.json", config).ok());
    test::SafetensorsWriter writer;
    for (const auto& [name, shape] : tensors_)
      writer.add(name, DType::f32, shape, zeros(shape));
    writer.write(folder_.path() / "model.safetensors");
    return error_of(folder_.path());
  }

  std::map<std::string, std::string> config_ = {
      {"hidden_size", "8"},
      {"num_hidden_layers", "2"},
      {"num_attention_heads", "2"},
      {"num_key_value_heads", "1"},
      {"head_dim", "4"},
      {"rope_parameters", R"({"rope_theta": 1e7, "partial_rotary_factor": 0.5})"},
      {"layer_types", R"(["linear_attention", "full_attention"])"},
      {"linear_num_key_heads", "2"},
      {"linear_num_value_heads", "4"},
      {"linear_key_head_dim", "3"},
      {"linear_value_head_dim", "2"},
      {"linear_conv_kernel_dim", "4"},
      {"moe_intermediate_size", "6"},
      {"shared_expert_intermediate_size", "5"},
      {"num_experts", "3"},
      {"num_experts_per_tok", "2"},
      {"rms_norm_eps", "1e-6"},
      {"max_position_embeddings", "64"}};
  Shapes tensors_;
};

TEST_F(Qwen35MoeFolderTest, norms_and_decay_are_folded_and_value_heads_grouped) {
  ASSERT_EQ(error(), "");
  const std::string root = "model.language_model.";
  EXPECT_EQ(first_value(root + "layers.0.input_layernorm.weight"), 1.0F);
  EXPECT_EQ(first_value(root + "layers.1.self_attn.q_norm.weight"), 1.0F);
  EXPECT_EQ(first_value(root + "norm.weight"), 1.0F);
  EXPECT_EQ(first_value(root + "layers.0.linear_attn.norm.weight"), 0.0F);
  EXPECT_EQ(first_value(root + "layers.0.linear_attn.A_log"), -1.0F);
  EXPECT_EQ(first<plan::DeltaMix>()->head_map, plan::HeadMap::grouped);
  EXPECT_EQ(first<plan::AttentionPrepare>()->rope.inv_freq.size(), 1U);
}

TEST_F(Qwen35MoeFolderTest, norms_beside_a_convolution_in_mlx_order_are_folded_already) {
  tensors_["model.language_model.layers.0.linear_attn.conv1d.weight"] = {20, 4, 1};
  ASSERT_EQ(error(), "");
  EXPECT_EQ(first_value("model.language_model.norm.weight"), 0.0F);
}

TEST_F(Qwen35MoeFolderTest, missing_keys_are_named) {
  const auto whole = config_;
  for (const auto& [key, value] : whole) {
    // They have defaults: as many heads, hidden / heads, and what the released models have.
    if (key == "num_key_value_heads" || key == "head_dim" || key == "rope_parameters") continue;
    if (key == "layer_types" || key == "hidden_size") continue;
    config_ = whole;
    config_.erase(key);
    EXPECT_THAT(error(), HasSubstr("text_config." + key));
  }
}

TEST_F(Qwen35MoeFolderTest, every_missing_tensor_is_named) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    if (name.ends_with("embed_tokens.weight")) continue;
    tensors_ = whole;
    tensors_.erase(name);
    // Without joined experts, separate ones are looked for.
    const size_t joined = name.find(".gate_up_proj");
    const std::string wanted = joined == std::string::npos ? name : name.substr(0, joined);
    const size_t down = wanted.find("experts.down_proj");
    EXPECT_THAT(error(), HasSubstr("tensor '" + wanted.substr(0, down)));
  }
}

TEST_F(Qwen35MoeFolderTest, joined_experts_of_another_size_are_refused) {
  tensors_["model.language_model.layers.1.mlp.experts.gate_up_proj"] = {3, 6, 8};
  EXPECT_THAT(error(), HasSubstr("expected shape (3, 12, 8), found (3, 6, 8)"));
}

TEST_F(Qwen35MoeFolderTest, attention_without_a_gate_is_refused) {
  config_["attn_output_gate"] = "false";
  EXPECT_THAT(error(), HasSubstr("text_config.attn_output_gate: expected true (gated attention), "
                                 "found false"));
}

TEST_F(Qwen35MoeFolderTest, gate_of_the_delta_rule_is_read) {
  config_["output_gate_type"] = "\"sigmoid\"";
  ASSERT_EQ(error(), "");
  EXPECT_EQ(first<plan::DeltaMix>()->gate, plan::Activation::sigmoid);
  config_["output_gate_type"] = "\"relu\"";
  EXPECT_THAT(error(), HasSubstr("output_gate_type: expected swish, silu or sigmoid, found relu"));
}

TEST_F(Qwen35MoeFolderTest, layer_types_are_checked) {
  config_["layer_types"] = R"(["linear_attention", "sliding_attention"])";
  EXPECT_THAT(error(), HasSubstr("text_config.layer_types: expected linear_attention or "
                                 "full_attention, found sliding_attention"));
  config_["layer_types"] = R"(["linear_attention"])";
  EXPECT_THAT(error(), HasSubstr("text_config.layer_types: expected 2 layers, found 1"));
}

}  // namespace
}  // namespace kapitsa::model
