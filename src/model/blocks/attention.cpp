#include "model/blocks/attention.h"

#include "model/blocks/decoder.h"

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

AttentionWeights bind_attention(Binder& binder, const AttentionConfig& config,
                                bool with_head_norms) {
  AttentionWeights w;
  w.norm = binder.norm(kMixerNorm, config.hidden);
  w.q = binder.matrix(kQ, config.q_rows(), config.hidden);
  w.k = binder.matrix(kK, config.kv_width(), config.hidden);
  w.v = binder.matrix(kV, config.kv_width(), config.hidden);
  w.o = binder.matrix(kO, config.hidden, config.q_width());
  w.q_bias = binder.optional_vector(kQBias, config.q_rows());
  w.k_bias = binder.optional_vector(kKBias, config.kv_width());
  w.v_bias = binder.optional_vector(kVBias, config.kv_width());
  w.o_bias = binder.optional_vector(kOBias, config.hidden);
  if (with_head_norms) {
    w.q_norm = binder.norm(kQNorm, config.head_dim);
    w.k_norm = binder.norm(kKNorm, config.head_dim);
  }
  return w;
}

AttentionRecorder::AttentionRecorder(plan::Plan& plan, const AttentionConfig& config,
                                     plan::Rope rope, DType kv_dtype, plan::BufferId x)
    : plan_(plan), config_(config), rope_(std::move(rope)), kv_dtype_(kv_dtype), x_(x) {
  q_ = plan.add_buffer({.name = "q", .width = config.q_rows()});
  k_ = plan.add_buffer({.name = "k", .width = config.kv_width()});
  v_ = plan.add_buffer({.name = "v", .width = config.kv_width()});
  out_ = plan.add_buffer({.name = "attention", .width = config.q_width()});
}

void AttentionRecorder::record(const AttentionWeights& w, int32_t layer) {
  const std::string at = std::to_string(layer);
  const auto norm = [&](plan::WeightId weight) {
    return plan::Norm{static_cast<bool>(weight), weight, config_.norm_eps};
  };
  const auto k_cache =
      plan_.add_state({.name = "k." + at, .dtype = kv_dtype_, .width = config_.kv_width()});
  const auto v_cache =
      plan_.add_state({.name = "v." + at, .dtype = kv_dtype_, .width = config_.kv_width()});
  const int32_t stride = config_.q_rows() / config_.n_heads;
  const plan::Heads q = {q_, config_.n_heads, config_.head_dim, stride, 0};
  const plan::Heads gate = {q_, config_.n_heads, config_.head_dim, stride, config_.head_dim};
  const plan::Heads k = plan_.heads(k_, config_.n_kv_heads);
  const plan::Heads v = plan_.heads(v_, config_.n_kv_heads);

  plan_.add(
      plan::NormLinear{
          .x = x_,
          .norm = norm(w.norm),
          .projections = {{w.q, w.q_bias, q_}, {w.k, w.k_bias, k_}, {w.v, w.v_bias, v_}}},
      at + ".qkv");
  plan_.add(plan::AttentionPrepare{.q = q,
                                   .k = k,
                                   .v = v,
                                   .q_norm = norm(w.q_norm),
                                   .k_norm = norm(w.k_norm),
                                   .rope = rope_,
                                   .k_cache = k_cache,
                                   .v_cache = v_cache},
            at + ".rope");
  plan_.add(
      plan::Attention{.attend = {.q = q,
                                 .k_cache = k_cache,
                                 .v_cache = v_cache,
                                 .n_kv_heads = config_.n_kv_heads,
                                 .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                                 .window = config_.window,
                                 .out = plan_.heads(out_, config_.n_heads)},
                      .gate = config_.output_gate ? gate : plan::Heads{}},
      at + ".attention");
  plan_.add(plan::LinearAdd{.in = out_, .weight = w.o, .bias = w.o_bias, .residual = {.out = x_}},
            at + ".attention_out");
}

}  // namespace kapitsa::model
