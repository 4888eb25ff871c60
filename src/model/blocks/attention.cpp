#include "model/blocks/attention.h"

#include <cmath>

namespace kapitsa::model {
namespace {

constexpr TensorName kQ = {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"};
constexpr TensorName kK = {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"};
constexpr TensorName kV = {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"};
constexpr TensorName kO = {"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"};
constexpr TensorName kQBias = {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"};
constexpr TensorName kKBias = {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"};
constexpr TensorName kVBias = {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"};
constexpr TensorName kOBias = {"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"};
constexpr TensorName kQNorm = {"blk.{}.attn_q_norm.weight",
                               "model.layers.{}.self_attn.q_norm.weight"};
constexpr TensorName kKNorm = {"blk.{}.attn_k_norm.weight",
                               "model.layers.{}.self_attn.k_norm.weight"};

}  // namespace

AttentionConfig read_attention(ConfigReader& reader) {
  constexpr Key kHidden = {"embedding_length", "hidden_size"};
  constexpr Key kKvHeads = {"attention.head_count_kv", "num_key_value_heads"};
  constexpr Key kHeadDim = {"attention.key_length", "head_dim"};
  AttentionConfig config;
  config.hidden = reader.count(kHidden, 1 << 20);
  config.n_heads = reader.count({"attention.head_count", "num_attention_heads"}, 4096);
  config.n_kv_heads = reader.count_or(kKvHeads, config.n_heads, config.n_heads);
  config.head_dim = reader.count_or(kHeadDim, std::max(config.hidden / config.n_heads, 1), 4096);
  config.norm_eps = reader.number({"attention.layer_norm_rms_epsilon", "rms_norm_eps"}, 0.0, 1.0);
  config.has_biases = reader.flag_or({"", "attention_bias"}, false);
  if (config.n_heads % config.n_kv_heads != 0) {
    reader.refuse(ErrorCode::corrupt_file, kKvHeads,
                  "a divisor of " + std::to_string(config.n_heads),
                  std::to_string(config.n_kv_heads));
  }
  if (!reader.has(kHeadDim) && config.hidden % config.n_heads != 0) {
    reader.refuse(ErrorCode::corrupt_file, kHidden,
                  "a multiple of " + std::to_string(config.n_heads) + " heads",
                  std::to_string(config.hidden));
  }
  return config;
}

std::vector<bool> read_sliding_layers(ConfigReader& reader, int32_t n_layers, int32_t first_full) {
  constexpr int32_t kPeriod = 4;
  constexpr Key kLayers = {"attention.sliding_window_pattern", "layer_types"};
  std::vector<bool> sliding;
  if (!reader.has(kLayers)) {
    for (int32_t i = 0; i < n_layers; ++i)
      sliding.push_back(i % kPeriod != first_full);
  } else if (reader.is_gguf()) {
    sliding = reader.flags(kLayers);
  } else {
    for (const std::string_view type : reader.texts(kLayers)) {
      sliding.push_back(type == "sliding_attention");
      if (type != "sliding_attention" && type != "full_attention") {
        reader.refuse(ErrorCode::unsupported, kLayers, "sliding_attention or full_attention", type);
      }
    }
  }
  if (sliding.size() != static_cast<size_t>(n_layers)) {
    reader.refuse(ErrorCode::corrupt_file, kLayers, std::to_string(n_layers) + " layers",
                  std::to_string(sliding.size()));
    sliding.resize(static_cast<size_t>(n_layers));
  }
  return sliding;
}

AttentionWeights bind_attention(Binder& binder, const AttentionConfig& config,
                                bool with_head_norms) {
  AttentionWeights w;
  w.norm = binder.norm(config.norm, config.hidden);
  w.q = binder.matrix(kQ, config.q_rows(), config.hidden);
  w.k = binder.matrix(kK, config.kv_width(), config.hidden);
  w.v = binder.matrix(kV, config.kv_width(), config.hidden);
  w.o = binder.matrix(kO, config.hidden, config.q_width());
  const auto bias = [&](const TensorName& name, int64_t n) {
    return config.has_biases ? binder.vector(name, n) : binder.optional_vector(name, n);
  };
  w.q_bias = bias(kQBias, config.q_rows());
  w.k_bias = bias(kKBias, config.kv_width());
  w.v_bias = bias(kVBias, config.kv_width());
  w.o_bias = bias(kOBias, config.hidden);
  if (with_head_norms) {
    w.q_norm = binder.norm(kQNorm, config.head_dim);
    w.k_norm = binder.norm(kKNorm, config.head_dim);
  }
  return w;
}

AttentionRecorder::AttentionRecorder(plan::Plan& plan, const AttentionConfig& config,
                                     plan::Rope rope, DType kv_dtype, plan::BufferId x,
                                     plan::BufferId y)
    : plan_(plan), config_(config), rope_(std::move(rope)), kv_dtype_(kv_dtype), x_(x),
      result_(result_of(x, y)) {
  q_ = plan.scratch("q", config.q_rows());
  k_ = plan.scratch("k", config.kv_width());
  v_ = plan.scratch("v", config.kv_width());
  out_ = plan.scratch("attention", config.q_width());
}

// The gate of the heads' results, or no buffer.
plan::Heads AttentionRecorder::gate(const AttentionWeights& w) {
  const int32_t n = config_.n_heads;
  const int32_t dim = config_.head_dim;
  if (config_.output_gate) return {q_, n, dim, 2 * dim, dim};
  if (!w.gate) return {};
  return plan_.heads(plan_.scratch("attention_gate", plan_.weight(w.gate).out), n);
}

void AttentionRecorder::record(const AttentionWeights& w, int32_t layer,
                               const BlockSelection& selection) {
  const std::string at = std::to_string(layer);
  const auto head_norm = [&](plan::WeightId weight) {
    return plan::Norm{weight || config_.weightless_head_norms, weight, config_.norm_eps};
  };
  const auto k_cache =
      plan_.add_state({.name = "k." + at, .dtype = kv_dtype_, .width = config_.kv_width()});
  const auto v_cache =
      plan_.add_state({.name = "v." + at, .dtype = kv_dtype_, .width = config_.kv_width()});
  const int32_t dim = config_.head_dim;
  const plan::Heads q = {q_, config_.n_heads, dim, config_.output_gate ? 2 * dim : dim, 0};
  const plan::Heads k = plan_.heads(k_, config_.n_kv_heads);
  const plan::Heads v = plan_.heads(v_, config_.n_kv_heads);
  const plan::Heads output_gate = gate(w);

  plan::NormLinear qkv = {
      .x = x_,
      .norm = {static_cast<bool>(w.norm), w.norm, config_.norm_eps},
      .projections = {{w.q, w.q_bias, q_}, {w.k, w.k_bias, k_}, {w.v, w.v_bias, v_}}};
  if (w.gate) qkv.projections.push_back({w.gate, {}, output_gate.buffer});
  plan_.add(std::move(qkv), at + ".qkv");
  plan_.add(plan::AttentionPrepare{.q = q,
                                   .k = k,
                                   .v = v,
                                   .q_norm = head_norm(w.q_norm),
                                   .k_norm = head_norm(w.k_norm),
                                   .q_scale = config_.q_scale,
                                   .rope = rope_,
                                   .k_cache = k_cache,
                                   .v_cache = v_cache},
            at + ".rope");
  plan_.add(plan::Attention{.attend = {.q = q,
                                       .k_cache = k_cache,
                                       .v_cache = v_cache,
                                       .n_kv_heads = config_.n_kv_heads,
                                       .scale = 1.0F / std::sqrt(static_cast<float>(dim)),
                                       .window = config_.window,
                                       .selection = selection.blocks,
                                       .selection_block = selection.block_size,
                                       .out = plan_.heads(out_, config_.n_heads)},
                            .gate = output_gate,
                            .gate_activation = config_.gate_activation},
            at + ".attention");
  plan::Residual residual = result_;
  residual.post_norm = {static_cast<bool>(w.post_norm), w.post_norm, config_.post_norm_eps};
  plan_.add(plan::LinearAdd{.in = out_, .weight = w.o, .bias = w.o_bias, .residual = residual},
            at + ".attention_out");
}

}  // namespace kapitsa::model
