// Laguna (released configs and transformers, modeling_laguna): pre-norm blocks with a number of
// query heads that differs by layer, an RMS norm of each q and k head, softplus gates on the heads'
// results, and sliding windows in three of four layers, which rotate by a rope of their own. The
// first layers have a SwiGLU MLP, the others experts: a sigmoid router with a bias that only
// chooses, weights divided by their sum and scaled, and a shared expert.
#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/experts.h"
#include "model/blocks/rope.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::model {
namespace {

constexpr TensorName kGate = {"blk.{}.attn_gate.weight", "model.layers.{}.self_attn.g_proj.weight"};

// Released files keep the router's bias with the experts, MLX the router in a module of its own.
std::vector<Rename> renames(weights::Format format) {
  if (format == weights::Format::mlx) {
    return {{"model.layers.{}.mlp.gate.weight", "model.layers.{}.mlp.gate.proj.weight"}};
  }
  return {{"model.layers.{}.mlp.gate.e_score_correction_bias",
           "model.layers.{}.mlp.experts.e_score_correction_bias"}};
}

struct Config {
  AttentionConfig attention;      // n_heads and window differ by layer
  std::vector<int32_t> n_heads;   // by layer
  std::vector<bool> sliding;      // by layer
  std::vector<bool> has_experts;  // by layer
  int32_t window = 0;
  int32_t mlp_width = 0;
  DecoderConfig decoder;
  ExpertsConfig experts;
  RopeConfig full_rope, sliding_rope;
};

void read_attention_layers(ConfigReader& reader, Config& c) {
  constexpr Key kWindow = {"attention.sliding_window", "sliding_window"};
  constexpr Key kUniform = {"attention.head_count", "num_attention_heads"};
  constexpr Key kByLayer = {"attention.head_count", "num_attention_heads_per_layer"};
  const Key& heads_key = reader.has(kByLayer) ? kByLayer : kUniform;
  const int32_t n_layers = c.decoder.n_layers;
  AttentionConfig& a = c.attention;
  a.n_kv_heads = reader.count({"attention.head_count_kv", "num_key_value_heads"}, 4096);
  a.head_dim = reader.count({"attention.key_length", "head_dim"}, 4096);
  a.gate_activation = plan::Activation::softplus;
  c.n_heads = reader.counts_per_layer(heads_key, n_layers, 4096);
  for (const int32_t n_heads : c.n_heads) {
    if (n_heads == 0 || n_heads % a.n_kv_heads != 0) {
      reader.refuse(ErrorCode::corrupt_file, heads_key,
                    fmt::format("multiples of {} key heads", a.n_kv_heads),
                    std::to_string(n_heads));
    }
  }
  c.window = reader.optional_count(kWindow, 1 << 28);
  const bool may_slide = reader.is_gguf() ? c.window > 0 : reader.has({"", "layer_types"});
  c.sliding = may_slide ? read_sliding_layers(reader, n_layers, 0)
                        : std::vector<bool>(static_cast<size_t>(n_layers));
  const bool slides = std::find(c.sliding.begin(), c.sliding.end(), true) != c.sliding.end();
  if (slides && c.window == 0) {
    reader.refuse(ErrorCode::corrupt_file, kWindow, "a number of tokens", "0");
  }
  c.full_rope = read_rope(reader, a.head_dim, 1.0, RopeLayers::full);
  if (slides) c.sliding_rope = read_rope(reader, a.head_dim, 1.0, RopeLayers::sliding);
}

// The first layers, or those that the file calls dense, have an MLP.
void read_mlp_layers(ConfigReader& reader, Config& c) {
  constexpr Key kTypes = {"", "mlp_layer_types"};
  constexpr Key kDense = {"leading_dense_block_count", ""};
  const auto n_layers = static_cast<size_t>(c.decoder.n_layers);
  const size_t n_dense =
      reader.is_gguf() ? static_cast<size_t>(reader.optional_count(kDense, 1000)) : 1;
  if (!reader.has(kTypes)) {
    for (size_t i = 0; i < n_layers; ++i)
      c.has_experts.push_back(i >= n_dense);
    return;
  }
  for (const std::string_view type : reader.texts(kTypes)) {
    c.has_experts.push_back(type == "sparse");
    if (type != "sparse" && type != "dense") {
      reader.refuse(ErrorCode::unsupported, kTypes, "sparse or dense", type);
    }
  }
  if (c.has_experts.size() != n_layers) {
    reader.refuse(ErrorCode::corrupt_file, kTypes, std::to_string(n_layers) + " layers",
                  std::to_string(c.has_experts.size()));
  }
}

void read_sigmoid_experts(ConfigReader& reader, Config& c) {
  c.experts = read_experts(reader, c.attention.hidden);
  c.experts.shared_width = reader.count(kSharedWidth, 1 << 22);
  c.experts.shared_mix = false;
  c.experts.selection_bias = true;
  plan::Router& router = c.experts.router;
  router.score = plan::RouterScore::sigmoid;
  router.renormalise = reader.flag_or({"expert_weights_norm", ""}, true);
  router.scale =
      reader.number_or({"expert_weights_scale", "moe_routed_scaling_factor"}, 1.0, 1e-6, 1e6);
}

// Siblings that need what this file does not record.
void refuse_siblings(ConfigReader& reader) {
  constexpr Key kSoftcap = {"", "moe_router_logit_softcapping"};
  constexpr Key kOnInput = {"", "moe_apply_router_weight_on_input"};
  constexpr Key kScore = {"", "moe_router_score_func"};
  constexpr Key kGating = {"expert_gating_func", ""};
  constexpr int32_t kSigmoid = 2;  // of GGUF
  if (reader.number_or(kSoftcap, 0.0, 0.0, 1e6) != 0.0F) {
    reader.refuse(ErrorCode::unsupported, kSoftcap, "0", "another value");
  }
  if (reader.flag_or(kOnInput, false)) {
    reader.refuse(ErrorCode::unsupported, kOnInput, "false", "true");
  }
  const std::string score = reader.text_or(kScore, "sigmoid");
  if (score != "sigmoid") reader.refuse(ErrorCode::unsupported, kScore, "sigmoid", score);
  const int32_t gating = reader.count_or(kGating, kSigmoid, 1000);
  if (gating != kSigmoid) {
    reader.refuse(ErrorCode::unsupported, kGating, "2 (sigmoid)", std::to_string(gating));
  }
}

Config read_config(ConfigReader& reader) {
  Config c;
  c.attention.hidden = reader.count({"embedding_length", "hidden_size"}, 1 << 20);
  c.attention.norm_eps =
      reader.number({"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, 0.0, 1.0);
  c.decoder = read_decoder(reader, c.attention.hidden);
  c.mlp_width = reader.count({"feed_forward_length", "intermediate_size"}, 1 << 22);
  read_attention_layers(reader, c);
  read_mlp_layers(reader, c);
  read_sigmoid_experts(reader, c);
  refuse_siblings(reader);
  return c;
}

// One gate for each head, or for each element of it.
plan::WeightId bind_gate(Binder& b, const AttentionConfig& attention) {
  const bool by_element = b.rows(kGate) == attention.q_width();
  return b.matrix(kGate, by_element ? attention.q_width() : attention.n_heads, attention.hidden);
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "laguna");
  const Config c = read_config(reader);
  KAPITSA_TRY(reader.status());
  const int32_t hidden = c.attention.hidden;
  const float eps = c.attention.norm_eps;

  Model model;
  model.architecture = "laguna";
  model.n_layers = c.decoder.n_layers;
  model.context_trained = c.decoder.context;
  Binder b(file, model, renames(file.format()));
  const DecoderWeights outer = bind_decoder(b, c.decoder, hidden);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  ExpertsRecorder experts(p, c.experts, x, eps);
  for (int32_t i = 0; i < c.decoder.n_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    b.set_layer(i);
    AttentionConfig attention_config = c.attention;
    attention_config.n_heads = c.n_heads[at];
    attention_config.window = c.sliding[at] ? c.window : 0;
    AttentionWeights attention_weights =
        bind_attention(b, attention_config, /*with_head_norms=*/true);
    attention_weights.gate = bind_gate(b, attention_config);
    KAPITSA_TRY(b.status());
    const RopeConfig& rope = c.sliding[at] ? c.sliding_rope : c.full_rope;
    AttentionRecorder attention(p, attention_config, make_rope(rope, plan::RopePairs::half),
                                options.kv_dtype, x);
    attention.record(attention_weights, i);
    if (c.has_experts[at]) {
      experts.record(bind_experts(b, c.experts), i);
    } else {
      record_mlp(p, bind_mlp(b, hidden, c.mlp_width), x, eps, i);
    }
    KAPITSA_TRY(b.status());
  }
  end_decoder(p, c.decoder, outer, x, eps);
  return model;
}

}  // namespace

extern const ArchDef arch_laguna;
const ArchDef arch_laguna = {
    .name = "laguna", .gguf_names = {"laguna"}, .model_types = {"laguna"}, .load = load};

}  // namespace kapitsa::model
