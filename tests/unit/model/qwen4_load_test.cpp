// What load_model makes of Qwen3.8-Flash-Next (qwen4_exp) and says about wrong files, in both
// formats: a layer of the delta rule with the n-gram embedding, and a layer of sparse attention.
#include "base/file.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "unit/model/load_fixture.h"

namespace kapitsa::model {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// ---- GGUF ----

class Qwen4GgufTest : public LoadModelTest {
protected:
  Qwen4GgufTest() {
    const Shapes half = {{"ffn_gate_inp.weight", {3, 8}},    {"ffn_gate_exps.weight", {3, 6, 8}},
                         {"ffn_up_exps.weight", {3, 6, 8}},  {"ffn_down_exps.weight", {3, 8, 6}},
                         {"ffn_gate_shexp.weight", {5, 8}},  {"ffn_up_shexp.weight", {5, 8}},
                         {"ffn_down_shexp.weight", {8, 5}},  {"ffn_gate_inp_shexp.weight", {8}},
                         {"hc_attn_norm.weight", {16}},      {"hc_ffn_norm.weight", {16}},
                         {"hc_attn_down.weight", {3, 16}},   {"hc_ffn_down.weight", {3, 16}},
                         {"hc_attn_up.weight", {16, 3}},     {"hc_ffn_up.weight", {16, 3}},
                         {"hc_attn_inject.weight", {2, 16}}, {"hc_ffn_inject.weight", {2, 16}}};
    for (const char* block : {"blk.0.", "blk.1."})
      for (const auto& [name, shape] : half)
        tensors_[block + name] = shape;
  }

  std::string error() {
    test::GgufWriter writer;
    writer.set("general.architecture", "qwen4exp");
    for (const auto& [key, value] : counts_)
      writer.set("qwen4exp." + key, value);
    writer.set("qwen4exp.attention.layer_norm_rms_epsilon", 1e-6F);
    writer.set("qwen4exp.attention.compress_ratios", ratios_);
    for (const auto& [key, values] : constants_)
      writer.set("qwen4exp.ple." + key, values);
    if (!ngram_layers_.empty()) writer.set("qwen4exp.ple.layers", ngram_layers_);
    for (const auto& [name, shape] : tensors_)
      writer.add_tensor(name, DType::f32, shape, zeros(shape));
    writer.write(folder_.path() / "m.gguf");
    return error_of(folder_.path() / "m.gguf");
  }

  std::map<std::string, uint32_t> counts_ = {{"block_count", 2},
                                             {"context_length", 64},
                                             {"embedding_length", 8},
                                             {"attention.head_count", 2},
                                             {"attention.head_count_kv", 1},
                                             {"attention.key_length", 4},
                                             {"rope.dimension_count", 2},
                                             {"full_attention_interval", 2},
                                             {"ssm.conv_kernel", 4},
                                             {"ssm.state_size", 3},
                                             {"ssm.group_count", 2},
                                             {"ssm.time_step_rank", 4},
                                             {"ssm.inner_size", 8},
                                             {"expert_count", 3},
                                             {"expert_used_count", 2},
                                             {"expert_feed_forward_length", 6},
                                             {"expert_shared_feed_forward_length", 5},
                                             {"hyper_connection.count", 2},
                                             {"hyper_connection.low_rank", 3},
                                             {"attention.indexer.head_count", 2},
                                             {"attention.indexer.key_length", 3},
                                             {"attention.indexer.top_k", 8},
                                             {"embedding_length_per_layer_input", 2},
                                             {"ple.ngram_size", 3},
                                             {"ple.heads_per_ngram", 1},
                                             {"ple.conv_kernel", 4},
                                             {"ple.eos_token_id", 1}};
  std::vector<uint32_t> ratios_ = {0, 4};
  std::vector<uint32_t> ngram_layers_ = {0};
  std::map<std::string, std::vector<uint64_t>> constants_ = {
      {"layer_multipliers", {(uint64_t{1} << 45) + 1, 5, 7}},
      {"head_offsets", {0, 3}},
      {"head_vocab_sizes", {3, 5}}};
  Shapes tensors_ = {{"token_embd.weight", {5, 8}},
                     {"output.weight", {5, 8}},
                     {"output_hc_norm.weight", {16}},
                     {"output_hc_down.weight", {3, 16}},
                     {"output_hc_up.weight", {16, 3}},
                     {"per_layer_token_embd.weight", {8, 2}},
                     {"blk.0.ple_key.weight", {16, 4}},
                     {"blk.0.ple_value.weight", {8, 4}},
                     {"blk.0.ple_norm_key.weight", {16}},
                     {"blk.0.ple_norm_query.weight", {16}},
                     {"blk.0.ple_norm_conv.weight", {16}},
                     {"blk.0.ple_conv1d.weight", {16, 4}},
                     {"blk.0.attn_qkv.weight", {20, 8}},
                     {"blk.0.attn_gate.weight", {8, 8}},
                     {"blk.0.ssm_beta.weight", {4, 8}},
                     {"blk.0.ssm_alpha.weight", {4, 8}},
                     {"blk.0.ssm_conv1d.weight", {20, 4}},
                     {"blk.0.ssm_a", {4}},
                     {"blk.0.ssm_dt.bias", {4}},
                     {"blk.0.ssm_norm.weight", {2}},
                     {"blk.0.ssm_out.weight", {8, 8}},
                     {"blk.1.attn_q.weight", {16, 8}},
                     {"blk.1.attn_k.weight", {4, 8}},
                     {"blk.1.attn_v.weight", {4, 8}},
                     {"blk.1.attn_output.weight", {8, 8}},
                     {"blk.1.attn_q_norm.weight", {4}},
                     {"blk.1.attn_k_norm.weight", {4}},
                     {"blk.1.indexer.q_proj.weight", {6, 8}},
                     {"blk.1.indexer.k_proj.weight", {3, 8}},
                     {"blk.1.indexer.q_norm.weight", {3}},
                     {"blk.1.indexer.k_norm.weight", {3}}};
};

TEST_F(Qwen4GgufTest, mixers_take_mixed_streams_and_leave_results) {
  ASSERT_EQ(error(), "");
  EXPECT_EQ(first<plan::Embed>()->copies, 2);
  const auto* mix = first<plan::StreamMix>();
  const auto* add = first<plan::StreamAdd>();
  const auto* in = first<plan::NormLinear>();
  const auto* out = first<plan::LinearAdd>();
  EXPECT_EQ(mix->streams, 2);
  EXPECT_EQ(in->x, mix->out);
  EXPECT_FALSE(in->norm.present);
  EXPECT_EQ(out->residual.out, add->y);
  EXPECT_FALSE(out->residual.accumulate);
  EXPECT_EQ(add->x, mix->x);
  EXPECT_FALSE(first<plan::Head>()->norm.present);
}

TEST_F(Qwen4GgufTest, gate_of_the_delta_rule_is_sigmoid_and_value_heads_are_tiled) {
  ASSERT_EQ(error(), "");
  EXPECT_EQ(first<plan::DeltaMix>()->gate, plan::Activation::sigmoid);
  EXPECT_EQ(first<plan::DeltaMix>()->head_map, plan::HeadMap::tiled);
}

TEST_F(Qwen4GgufTest, attention_sees_what_the_indexer_selects) {
  ASSERT_EQ(error(), "");
  const auto* index = first<plan::IndexSelect>();
  const auto* attention = first<plan::Attention>();
  EXPECT_EQ(index->select.ratio, 4);
  EXPECT_EQ(index->select.budget, 2);
  EXPECT_EQ(attention->attend.selection, index->select.out);
  EXPECT_EQ(attention->attend.selection_block, 4);
}

TEST_F(Qwen4GgufTest, constants_of_the_hash_keep_all_bits) {
  ASSERT_EQ(error(), "");
  const plan::NgramRows& rows = first<plan::NgramEmbed>()->rows;
  EXPECT_THAT(rows.multipliers, ::testing::ElementsAre((int64_t{1} << 45) + 1, 5, 7));
  EXPECT_THAT(rows.head_offsets, ::testing::ElementsAre(0, 3));
  EXPECT_THAT(rows.head_vocab, ::testing::ElementsAre(3, 5));
  EXPECT_EQ(rows.eos_token, 1);
  EXPECT_EQ(first<plan::NgramEmbed>()->dilation, 3);
  EXPECT_EQ(model_->plan.n_history, 2);
}

TEST_F(Qwen4GgufTest, model_without_n_grams_loads) {
  ngram_layers_ = {};
  ASSERT_EQ(error(), "");
  EXPECT_EQ(first<plan::NgramEmbed>(), nullptr);
  EXPECT_EQ(model_->plan.n_history, 0);
}

TEST_F(Qwen4GgufTest, every_missing_tensor_is_named_with_its_shape) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    if (name == "token_embd.weight" || name == "output.weight") continue;
    if (name == "blk.1.indexer.q_proj.weight") continue;  // tells that q and k are apart
    tensors_ = whole;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "' is missing, expected with shape ("));
  }
}

TEST_F(Qwen4GgufTest, missing_keys_are_named) {
  const auto whole = counts_;
  for (const auto& [key, value] : whole) {
    // They have defaults, or the shape of a tensor tells.
    if (key == "attention.head_count_kv" || key == "attention.key_length") continue;
    if (key == "rope.dimension_count" || key == "full_attention_interval") continue;
    counts_ = whole;
    counts_.erase(key);
    EXPECT_THAT(error(), HasSubstr("qwen4exp." + key));
  }
}

TEST_F(Qwen4GgufTest, sizes_beyond_reason_are_refused_by_name) {
  const auto whole = counts_;
  for (const auto& [key, value] : whole) {
    counts_ = whole;
    counts_[key] = UINT32_MAX;
    EXPECT_THAT(error(), HasSubstr("qwen4exp." + key));
  }
}

TEST_F(Qwen4GgufTest, heads_outside_the_table_are_refused) {
  constants_["head_vocab_sizes"] = {3, 6};
  EXPECT_THAT(error(), EndsWith("n-gram head 1: expected rows within a table of 8, found 6 from "
                                "row 3 on"));
  constants_["head_vocab_sizes"] = {3};
  EXPECT_THAT(error(), EndsWith("qwen4exp.ple.head_vocab_sizes: expected 2 numbers, found 1"));
}

TEST_F(Qwen4GgufTest, ratios_of_layers_are_checked) {
  ratios_ = {0};
  EXPECT_THAT(error(), EndsWith("attention.compress_ratios: expected 2 layers, found 1"));
  ratios_ = {0, 3};
  EXPECT_THAT(error(),
              EndsWith("attention.indexer.top_k: expected a multiple of 3 tokens, found 8"));
}

TEST_F(Qwen4GgufTest, attention_without_a_ratio_sees_everything) {
  ratios_ = {4, 0};
  for (const char* name : {"q_proj", "k_proj", "q_norm", "k_norm"})
    tensors_.erase("blk.1.indexer." + std::string(name) + ".weight");
  ASSERT_EQ(error(), "");
  EXPECT_EQ(first<plan::IndexSelect>(), nullptr);
  EXPECT_FALSE(first<plan::Attention>()->attend.selection);
}

TEST_F(Qwen4GgufTest, layers_with_two_ratios_are_refused) {
  counts_["full_attention_interval"] = 1;
  ratios_ = {2, 4};
  EXPECT_THAT(error(), EndsWith("attention.compress_ratios: expected one ratio for all layers that "
                                "select, found 2 and 4"));
}

// The head is a third block, with the tensors of a layer of attention.
class Qwen4HeadTest : public Qwen4GgufTest {
protected:
  Qwen4HeadTest() {
    counts_["block_count"] = 3;
    counts_["nextn_predict_layers"] = 1;
    Shapes head = {
        {"blk.2.nextn.eh_proj.weight", {8, 16}},      {"blk.2.nextn.enorm.weight", {8}},
        {"blk.2.nextn.hnorm.weight", {16}},           {"blk.2.nextn.hc_head_norm.weight", {16}},
        {"blk.2.nextn.hc_head_down.weight", {3, 16}}, {"blk.2.nextn.hc_head_up.weight", {16, 3}}};
    for (const auto& [name, shape] : tensors_)
      if (name.starts_with("blk.1.")) head["blk.2." + name.substr(6)] = shape;
    tensors_.merge(head);
  }
};

TEST_F(Qwen4HeadTest, prediction_head_reads_the_streams_and_mixes_its_own) {
  ASSERT_EQ(error(), "");
  ASSERT_EQ(model_->plan.routines().size(), 2U);
  EXPECT_EQ(model_->n_layers, 2);
  const auto& steps = model_->plan.routines()[1].steps;
  const auto* join = std::get_if<plan::MtpJoin>(&steps[1].op);
  ASSERT_NE(join, nullptr);
  EXPECT_EQ(join->streams, 2);
  EXPECT_EQ(join->hidden, model_->plan.features);
  EXPECT_EQ(model_->plan.buffer(model_->plan.features).width, 16);
  const auto* head = std::get_if<plan::Head>(&steps.back().op);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->x, first<plan::StreamMix>()->out);
}

TEST_F(Qwen4HeadTest, ratio_of_the_prediction_head_is_its_own) {
  const auto n_selects = [&] {
    int n = 0;
    for (const plan::Step& step : model_->plan.routines()[1].steps)
      n += std::holds_alternative<plan::IndexSelect>(step.op) ? 1 : 0;
    return n;
  };
  ratios_ = {0, 4, 0};
  ASSERT_EQ(error(), "");
  EXPECT_EQ(n_selects(), 0);
  ratios_ = {0, 4, 4};
  ASSERT_EQ(error(), "");
  EXPECT_EQ(n_selects(), 1);
}

TEST_F(Qwen4HeadTest, missing_tensors_of_the_prediction_head_are_named) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    if (!name.starts_with("blk.2.") || name == "blk.2.nextn.eh_proj.weight") continue;
    if (name.find("indexer") != std::string::npos) continue;  // without a ratio
    tensors_ = whole;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "' is missing, expected with shape ("));
  }
}

TEST_F(Qwen4GgufTest, values_out_of_range_are_refused) {
  counts_["hyper_connection.count"] = 1;
  EXPECT_THAT(error(), EndsWith("hyper_connection.count: expected 2 or more streams, found 1"));
  counts_["hyper_connection.count"] = 2;
  counts_["ple.ngram_size"] = 1;
  EXPECT_THAT(error(), EndsWith("ple.ngram_size: expected 2 or more tokens, found 1"));
  counts_["ple.ngram_size"] = 3;
  ngram_layers_ = {0, 1};
  EXPECT_THAT(error(), EndsWith("ple.layers: expected one layer at most, found 2"));
}

TEST_F(Qwen4GgufTest, index_heads_smaller_than_the_rope_are_refused) {
  counts_["rope.dimension_count"] = 4;
  EXPECT_THAT(error(), EndsWith("attention.indexer.key_length: expected 4 rotary elements or "
                                "more, found 3"));
}

// ---- Hugging Face ----

class Qwen4FolderTest : public LoadModelTest {
protected:
  Qwen4FolderTest() {
    const Shapes half = {{"mlp.gate.weight", {3, 8}},
                         {"mlp.experts.gate_up_proj", {3, 12, 8}},
                         {"mlp.experts.down_proj", {3, 8, 6}},
                         {"mlp.shared_expert.gate_proj.weight", {5, 8}},
                         {"mlp.shared_expert.up_proj.weight", {5, 8}},
                         {"mlp.shared_expert.down_proj.weight", {8, 5}},
                         {"mlp.shared_expert_gate.weight", {1, 8}}};
    const Shapes mixer = {{"hc_norm.weight", {16}},
                          {"input_mix_weight_down.weight", {3, 16}},
                          {"input_mix_weight_up.weight", {16, 3}},
                          {"block_inject_weight.weight", {2, 16}}};
    for (const std::string layer : {"layers.0.", "layers.1."}) {
      for (const auto& [name, shape] : half)
        tensors_[kRoot + layer + name] = shape;
      for (const auto& [name, shape] : mixer) {
        tensors_[kRoot + layer + "attn_hyper_connection." + name] = shape;
        tensors_[kRoot + layer + "mlp_hyper_connection." + name] = shape;
        if (name != "block_inject_weight.weight") {
          tensors_[kRoot + "hyper_connection_mixer." + name] = shape;
        }
      }
    }
    const Shapes rest = {{"embed_tokens.weight", {5, 8}},
                         {"layers.0.ple.key_proj.weight", {16, 8}},
                         {"layers.0.ple.value_proj.weight", {8, 8}},
                         {"layers.0.ple.norm_key.weight", {16}},
                         {"layers.0.ple.norm_query.weight", {16}},
                         {"layers.0.ple.norm_conv.weight", {16}},
                         {"layers.0.ple.conv1d.weight", {16, 1, 4}},
                         {kTable + "shard_0.weight", {4, 4}},
                         {kTable + "shard_1.weight", {4, 4}},
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
                         {"layers.1.self_attn.k_norm.weight", {4}},
                         {"layers.1.self_attn.indexer.index_qk_proj.weight", {9, 8}},
                         {"layers.1.self_attn.indexer.q_layernorm.weight", {3}},
                         {"layers.1.self_attn.indexer.k_layernorm.weight", {3}}};
    for (const auto& [name, shape] : rest)
      tensors_[kRoot + name] = shape;
    tensors_["lm_head.weight"] = {5, 8};
  }

  std::string error() {
    std::string text;
    for (const auto& [key, value] : config_)
      text.append(text.empty() ? "{" : ", ").append("\"" + key + "\": " + value);
    const std::string config =
        R"({"model_type": "qwen4_exp", )" + more_ + R"("text_config": )" + text + "}}";
    EXPECT_TRUE(write_file_atomic(folder_.path() / "config.json", config).ok());
    test::SafetensorsWriter writer;
    for (const auto& [name, shape] : tensors_)
      writer.add(name, DType::f32, shape, zeros(shape));
    for (const auto& [name, values] : constants_) {
      writer.add(kRoot + "layers.0.ple.ple_embedding." + name, DType::i64, {std::ssize(values)},
                 std::as_bytes(std::span(values)));
    }
    writer.write(folder_.path() / "model.safetensors");
    return error_of(folder_.path());
  }

  const std::string kRoot = "model.language_model.";
  const std::string kTable = "layers.0.ple.ple_embedding.ngram_embedding.";
  std::string more_;  // keys beside text_config
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
      {"output_gate_type", "\"sigmoid\""},
      {"moe_intermediate_size", "6"},
      {"shared_expert_intermediate_size", "5"},
      {"num_experts", "3"},
      {"num_experts_per_tok", "2"},
      {"hc_count", "2"},
      {"hc_lowrank", "3"},
      {"indexer_n_heads", "2"},
      {"indexer_kv_heads", "1"},
      {"indexer_head_dim", "3"},
      {"indexer_budget", "8"},
      {"indexer_compress_ratio", "4"},
      {"ple_layer_ids", "[1]"},
      {"ple_embed_dim", "8"},
      {"ple_conv_kernel_size", "4"},
      {"ngram_size", "3"},
      {"heads_per_ngram", "1"},
      {"split_ngram_parts", "2"},
      {"eos_token_id", "[1, 2]"},
      {"rms_norm_eps", "1e-6"},
      {"max_position_embeddings", "64"}};
  Shapes tensors_;
  std::map<std::string, std::vector<int64_t>> constants_ = {
      {"layer_multipliers", {(int64_t{1} << 45) + 1, 5, 7}},
      {"ngram_heads_offsets", {0, 3}},
      {"ngram_heads_vocab_sizes", {3, 5}}};
};

TEST_F(Qwen4FolderTest, norms_are_folded) {
  ASSERT_EQ(error(), "");
  for (const char* name :
       {"layers.0.attn_hyper_connection.hc_norm.weight", "hyper_connection_mixer.hc_norm.weight",
        "layers.0.ple.norm_key.weight", "layers.1.self_attn.indexer.k_layernorm.weight"}) {
    EXPECT_EQ(first_value(kRoot + name), 1.0F) << name;
  }
  EXPECT_EQ(first_value(kRoot + "layers.0.linear_attn.norm.weight"), 0.0F);
}

TEST_F(Qwen4FolderTest, parts_of_the_table_stay_where_they_are) {
  ASSERT_EQ(error(), "");
  const plan::NgramRows& rows = first<plan::NgramEmbed>()->rows;
  const plan::Weight& table = model_->plan.weight(rows.table);
  EXPECT_EQ(table.experts, 2);
  EXPECT_EQ(table.out, 4);
  ASSERT_EQ(table.expert_data.size(), 2U);
  EXPECT_EQ(table.expert_data[1].data(),
            file_->find(kRoot + kTable + "shard_1.weight")->data.data());
  EXPECT_EQ(rows.eos_token, 1);
  EXPECT_EQ(rows.multipliers[0], (int64_t{1} << 45) + 1);
}

TEST_F(Qwen4FolderTest, both_names_of_sparse_attention_are_known) {
  config_["layer_types"] = R"(["linear_attention", "indexed_attention"])";
  EXPECT_EQ(error(), "");
  config_["layer_types"] = R"(["linear_attention", "sliding_attention"])";
  EXPECT_THAT(error(), HasSubstr("text_config.layer_types: expected "));
}

TEST_F(Qwen4FolderTest, missing_keys_are_named) {
  const auto whole = config_;
  for (const auto& [key, value] : whole) {
    // They have defaults; without a layer there is no n-gram embedding.
    if (key == "num_key_value_heads" || key == "head_dim" || key == "rope_parameters") continue;
    if (key == "layer_types" || key == "hidden_size" || key == "indexer_kv_heads") continue;
    if (key == "ple_layer_ids" || key == "ple_embed_dim" || key == "output_gate_type") continue;
    config_ = whole;
    config_.erase(key);
    EXPECT_THAT(error(), HasSubstr("text_config." + key));
  }
}

TEST_F(Qwen4FolderTest, sizes_below_zero_are_refused_by_name) {
  const auto whole = config_;
  for (const auto& [key, value] : whole) {
    if (value.find_first_not_of("0123456789") != std::string::npos) continue;
    config_ = whole;
    config_[key] = "-1";
    EXPECT_THAT(error(), HasSubstr("text_config." + key));
  }
}

TEST_F(Qwen4FolderTest, every_missing_tensor_is_named) {
  const Shapes whole = tensors_;
  for (const auto& [name, shape] : whole) {
    if (name.ends_with("embed_tokens.weight") || name == "lm_head.weight") continue;
    if (name.find("mlp.experts.") != std::string::npos) continue;  // separate ones are looked for
    tensors_ = whole;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr("tensor '" + name + "' is missing"));
  }
}

TEST_F(Qwen4FolderTest, constants_of_another_shape_are_refused) {
  constants_["layer_multipliers"].pop_back();
  EXPECT_THAT(error(), HasSubstr("layer_multipliers': expected i64 (3), found i64 (2)"));
  constants_.erase("layer_multipliers");
  EXPECT_THAT(error(), HasSubstr("layer_multipliers': expected i64 (3), found none"));
}

TEST_F(Qwen4FolderTest, halves_of_the_join_of_the_prediction_head_are_put_side_by_side) {
  for (const auto& [name, shape] : Shapes(tensors_)) {
    const std::string layer = kRoot + "layers.1.";
    if (name.starts_with(layer)) tensors_["mtp.layers.0." + name.substr(layer.size())] = shape;
    const std::string mixer = kRoot + "hyper_connection_mixer.";
    if (name.starts_with(mixer)) tensors_["mtp." + name.substr(kRoot.size())] = shape;
  }
  tensors_["mtp.fc_embedding.weight"] = {8, 8};
  tensors_["mtp.fc_hidden.weight"] = {8, 8};
  tensors_["mtp.pre_fc_norm_embedding.weight"] = {8};
  tensors_["mtp.pre_fc_norm_hidden.weight"] = {16};
  ASSERT_EQ(error(), "");
  ASSERT_EQ(model_->plan.routines().size(), 2U);
  const auto* join = std::get_if<plan::MtpJoin>(&model_->plan.routines()[1].steps[1].op);
  ASSERT_NE(join, nullptr);
  EXPECT_EQ(model_->plan.weight(join->weight).in, 16);
  tensors_.erase("mtp.fc_hidden.weight");
  EXPECT_THAT(error(), HasSubstr("tensor 'mtp.fc_hidden.weight' is missing, expected with shape "
                                 "(8, 8)"));
}

TEST_F(Qwen4FolderTest, several_key_heads_of_the_indexer_are_refused) {
  config_["indexer_kv_heads"] = "2";
  EXPECT_THAT(error(), EndsWith("text_config.indexer_kv_heads: expected 1, found 2"));
}

TEST_F(Qwen4FolderTest, n_gram_layer_beyond_the_last_is_refused) {
  config_["ple_layer_ids"] = "[3]";
  EXPECT_THAT(error(), HasSubstr("text_config.ple_layer_ids"));
}

TEST_F(Qwen4FolderTest, mlx_conversions_are_refused) {
  more_ = R"("quantization": {"group_size": 32, "bits": 4}, )";
  EXPECT_THAT(error(), EndsWith("qwen4_exp in an MLX conversion is not supported, expected the "
                                "released folder or a GGUF file"));
}

}  // namespace
}  // namespace kapitsa::model
