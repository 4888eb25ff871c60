// Sizes from the published config.json files: SmolLM2-135M-Instruct, Qwen3-1.7B, Qwen3-30B-A3B,
// Qwen3.6-35B-A3B, Qwen3.8-27B, Qwen3.8-Flash-Next, NVIDIA-Nemotron-3.5-Lightning-30B-A3B.
#include "engine/synthetic_models.h"

#include "model/arch.h"

#include <algorithm>
#include <utility>

namespace kapitsa::engine {
namespace {

using Metadata = std::map<std::string, weights::Value, std::less<>>;

SyntheticShape smollm2() {
  return {.architecture = "llama",
          .n_layers = 30,
          .hidden = 576,
          .n_vocab = 49152,
          .metadata = {{"context_length", int64_t{8192}},
                       {"attention.head_count", int64_t{9}},
                       {"attention.head_count_kv", int64_t{3}},
                       {"attention.layer_norm_rms_epsilon", 1e-5},
                       {"rope.dimension_count", int64_t{64}},
                       {"rope.freq_base", 1e5},
                       {"feed_forward_length", int64_t{1536}}},
          .tied = true};
}

Metadata qwen3_attention(int64_t heads, int64_t kv_heads) {
  return {{"context_length", int64_t{40960}},
          {"attention.head_count", heads},
          {"attention.head_count_kv", kv_heads},
          {"attention.key_length", int64_t{128}},
          {"attention.value_length", int64_t{128}},
          {"attention.layer_norm_rms_epsilon", 1e-6},
          {"rope.freq_base", 1e6}};
}

SyntheticShape qwen3_1_7b() {
  SyntheticShape shape{.architecture = "qwen3", .n_layers = 28, .hidden = 2048, .n_vocab = 151936};
  shape.metadata = qwen3_attention(16, 8);
  shape.metadata["feed_forward_length"] = int64_t{6144};
  shape.tied = true;
  return shape;
}

SyntheticShape qwen3_30b() {
  SyntheticShape shape{
      .architecture = "qwen3moe", .n_layers = 48, .hidden = 2048, .n_vocab = 151936};
  shape.metadata = qwen3_attention(32, 4);
  shape.metadata["expert_count"] = int64_t{128};
  shape.metadata["expert_used_count"] = int64_t{8};
  shape.metadata["expert_feed_forward_length"] = int64_t{768};
  return shape;
}

// Gated delta rule in three layers of four, gated attention in the fourth.
Metadata qwen35_mixers(int64_t heads, int64_t kv_heads, int64_t value_heads) {
  return {{"context_length", int64_t{262144}},
          {"attention.head_count", heads},
          {"attention.head_count_kv", kv_heads},
          {"attention.key_length", int64_t{256}},
          {"attention.value_length", int64_t{256}},
          {"attention.layer_norm_rms_epsilon", 1e-6},
          {"rope.dimension_count", int64_t{64}},
          {"rope.dimension_sections", std::vector<int64_t>{11, 11, 10, 0}},
          {"rope.freq_base", 1e7},
          {"ssm.conv_kernel", int64_t{4}},
          {"ssm.inner_size", value_heads * 128},
          {"ssm.state_size", int64_t{128}},
          {"ssm.time_step_rank", value_heads},
          {"ssm.group_count", int64_t{16}},
          {"full_attention_interval", int64_t{4}}};
}

SyntheticShape qwen35_27b() {
  SyntheticShape shape{.architecture = "qwen35", .n_layers = 64, .hidden = 5120, .n_vocab = 248320};
  shape.metadata = qwen35_mixers(24, 4, 48);
  shape.metadata["feed_forward_length"] = int64_t{17408};
  return shape;
}

SyntheticShape qwen35_35b() {
  SyntheticShape shape{
      .architecture = "qwen35moe", .n_layers = 40, .hidden = 2048, .n_vocab = 248320};
  shape.metadata = qwen35_mixers(16, 2, 32);
  shape.metadata["expert_count"] = int64_t{256};
  shape.metadata["expert_used_count"] = int64_t{8};
  shape.metadata["expert_feed_forward_length"] = int64_t{512};
  shape.metadata["expert_shared_feed_forward_length"] = int64_t{512};
  return shape;
}

// The n-gram embedding is in the second layer: 16 heads, whose rows follow each other in the table.
SyntheticShape flash_next() {
  constexpr int32_t kLayers = 48;
  const std::vector<int64_t> head_rows = {
      20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
      20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171};
  std::vector<int64_t> offsets;
  int64_t n_rows = 0;
  for (const int64_t rows : head_rows) {
    offsets.push_back(n_rows);
    n_rows += rows;
  }
  std::vector<int64_t> ratios;
  for (int32_t layer = 0; layer < kLayers; ++layer)
    ratios.push_back(layer % 4 == 3 ? 4 : 0);
  SyntheticShape shape{.architecture = "qwen4exp",
                       .n_layers = kLayers,
                       .min_layers = 2,
                       .hidden = 2560,
                       .n_vocab = 248320};
  shape.metadata = qwen35_mixers(24, 2, 48);
  shape.metadata.merge(
      Metadata{{"expert_count", int64_t{512}},
               {"expert_used_count", int64_t{10}},
               {"expert_feed_forward_length", int64_t{640}},
               {"expert_shared_feed_forward_length", int64_t{640}},
               {"hyper_connection.count", int64_t{4}},
               {"hyper_connection.low_rank", int64_t{320}},
               {"attention.indexer.head_count", int64_t{4}},
               {"attention.indexer.key_length", int64_t{128}},
               {"attention.indexer.top_k", int64_t{2048}},
               {"attention.compress_ratios", ratios},
               {"embedding_length_per_layer_input", int64_t{160}},
               {"ple.layers", std::vector<int64_t>{1}},
               {"ple.ngram_size", int64_t{3}},
               {"ple.heads_per_ngram", int64_t{8}},
               {"ple.conv_kernel", int64_t{4}},
               {"ple.eos_token_id", int64_t{248044}},
               {"ple.layer_multipliers",
                std::vector<int64_t>{23703573157769, 20109073645365, 8052911324071}},
               {"ple.head_offsets", offsets},
               {"ple.head_vocab_sizes", head_rows}});
  return shape;
}

// M: Mamba-2, E: experts, *: attention.
SyntheticShape nemotron() {
  constexpr std::string_view kPattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
  std::vector<int64_t> kv_heads;
  std::vector<int64_t> feed_forward;
  for (const char layer : kPattern) {
    kv_heads.push_back(layer == '*' ? 2 : 0);
    feed_forward.push_back(layer == 'E' ? 1856 : 0);
  }
  return {.architecture = "nemotron_h_moe",
          .n_layers = static_cast<int32_t>(kPattern.size()),
          .hidden = 2688,
          .n_vocab = 131072,
          .metadata = {{"context_length", int64_t{262144}},
                       {"attention.head_count", int64_t{32}},
                       {"attention.head_count_kv", kv_heads},
                       {"attention.key_length", int64_t{128}},
                       {"attention.value_length", int64_t{128}},
                       {"attention.layer_norm_rms_epsilon", 1e-5},
                       {"rope.dimension_count", int64_t{128}},
                       {"rope.freq_base", 1e4},
                       {"feed_forward_length", feed_forward},
                       {"ssm.conv_kernel", int64_t{4}},
                       {"ssm.inner_size", int64_t{4096}},
                       {"ssm.state_size", int64_t{128}},
                       {"ssm.time_step_rank", int64_t{64}},
                       {"ssm.group_count", int64_t{8}},
                       {"expert_count", int64_t{128}},
                       {"expert_used_count", int64_t{6}},
                       {"expert_shared_count", int64_t{1}},
                       {"expert_feed_forward_length", int64_t{1856}},
                       {"expert_shared_feed_forward_length", int64_t{3712}},
                       {"expert_weights_norm", true},
                       {"expert_weights_scale", 2.5},
                       {"expert_group_count", int64_t{1}},
                       {"expert_group_used_count", int64_t{1}},
                       {"expert_gating_func", int64_t{2}}},
          // 2688 and 1856 are no multiples of 256, so K blocks do not fit these rows.
          .matrix = DType::q4_0,
          .output = DType::q8_0};
}

// No config of it is public: 35 B parameters as more layers of the SDAR-30B-A3B shape, which is
// Qwen3-30B-A3B's, in blocks as long as LLaDA 2's.
SyntheticShape clover() {
  SyntheticShape shape = qwen3_30b();
  shape.n_layers = 56;
  shape.block = 32;
  shape.mask_token = 151669;
  return shape;
}

struct Named {
  std::string_view name;
  SyntheticShape (*shape)();
};
constexpr Named kShapes[] = {{"smollm2", smollm2},         {"qwen3-1.7b", qwen3_1_7b},
                             {"qwen3-30b-a3b", qwen3_30b}, {"35b", qwen35_35b},
                             {"27b", qwen35_27b},          {"flash-next", flash_next},
                             {"bolt", nemotron},           {"clover", clover}};

// A shape is offered when this build has its architecture.
bool runs(const SyntheticShape& shape) {
  return std::ranges::any_of(model::architectures(), [&](const model::ArchDef* arch) {
    return std::ranges::find(arch->gguf_names, shape.architecture) != arch->gguf_names.end();
  });
}

}  // namespace

SyntheticShape synthetic_shape(std::string_view name) {
  for (const Named& entry : kShapes) {
    if (entry.name != name) continue;
    SyntheticShape shape = entry.shape();
    if (runs(shape)) return shape;
  }
  return {};
}

std::vector<std::string_view> synthetic_names() {
  std::vector<std::string_view> names;
  for (const Named& entry : kShapes) {
    if (runs(entry.shape())) names.push_back(entry.name);
  }
  return names;
}

}  // namespace kapitsa::engine
