#include "model/blocks/delta_mixer.h"

#include <fmt/format.h>

#include <cmath>

namespace kapitsa::model {
namespace {

constexpr TensorName kQkv = {"blk.{}.attn_qkv.weight",
                             "model.layers.{}.linear_attn.in_proj_qkv.weight"};
constexpr TensorName kZ = {"blk.{}.attn_gate.weight",
                           "model.layers.{}.linear_attn.in_proj_z.weight"};
constexpr TensorName kB = {"blk.{}.ssm_beta.weight",
                           "model.layers.{}.linear_attn.in_proj_b.weight"};
constexpr TensorName kA = {"blk.{}.ssm_alpha.weight",
                           "model.layers.{}.linear_attn.in_proj_a.weight"};
constexpr TensorName kQkvz = {"blk.{}.ssm_in.weight",
                              "model.layers.{}.linear_attn.in_proj_qkvz.weight"};
constexpr TensorName kBa = {"blk.{}.ssm_ba.weight",
                            "model.layers.{}.linear_attn.in_proj_ba.weight"};
constexpr TensorName kConv = {"blk.{}.ssm_conv1d.weight",
                              "model.layers.{}.linear_attn.conv1d.weight"};
constexpr TensorName kDecay = {"blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log"};
constexpr TensorName kDtBias = {"blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias"};
constexpr TensorName kOutNorm = {"blk.{}.ssm_norm.weight",
                                 "model.layers.{}.linear_attn.norm.weight"};
constexpr TensorName kOut = {"blk.{}.ssm_out.weight",
                             "model.layers.{}.linear_attn.out_proj.weight"};

void read_gate(ConfigReader& reader, DeltaConfig& config) {
  constexpr Key kGate = {"", "output_gate_type"};
  const std::string type = reader.text_or(kGate, "silu");
  if (type == "sigmoid") {
    config.gate = plan::Activation::sigmoid;
  } else if (type != "silu" && type != "swish") {
    reader.refuse(ErrorCode::unsupported, kGate, "swish, silu or sigmoid", type);
  }
}

}  // namespace

DeltaConfig read_delta(ConfigReader& reader, int32_t hidden, float norm_eps) {
  constexpr Key kValueHeads = {"ssm.time_step_rank", "linear_num_value_heads"};
  constexpr Key kInner = {"ssm.inner_size", ""};
  DeltaConfig config;
  config.hidden = hidden;
  config.norm_eps = norm_eps;
  config.log_decay = !reader.is_gguf();
  config.n_k = reader.count({"ssm.group_count", "linear_num_key_heads"}, 4096);
  config.n_v = reader.count(kValueHeads, 4096);
  config.dk = reader.count({"ssm.state_size", "linear_key_head_dim"}, 4096);
  config.taps = reader.count({"ssm.conv_kernel", "linear_conv_kernel_dim"}, 64);
  if (reader.is_gguf()) {
    const int32_t inner = reader.count(kInner, 1 << 24);
    if (inner % config.n_v != 0) {
      reader.refuse(ErrorCode::corrupt_file, kInner,
                    fmt::format("a multiple of {} value heads", config.n_v), std::to_string(inner));
    }
    config.dv = inner / config.n_v;
  } else {
    config.dv = reader.count({"", "linear_value_head_dim"}, 4096);
  }
  if (config.n_v % config.n_k != 0) {
    reader.refuse(ErrorCode::corrupt_file, kValueHeads,
                  fmt::format("a multiple of {} key heads", config.n_k),
                  std::to_string(config.n_v));
  }
  if (config.taps < 2) {
    reader.refuse(ErrorCode::unsupported, {"ssm.conv_kernel", "linear_conv_kernel_dim"},
                  "2 or more taps", std::to_string(config.taps));
  }
  read_gate(reader, config);
  return config;
}

std::vector<bool> read_delta_layers(ConfigReader& reader, int32_t n_layers,
                                    std::string_view attention) {
  constexpr Key kTypes = {"", "layer_types"};
  constexpr Key kRecurrent = {"attention.recurrent_layers", ""};
  const auto n = static_cast<size_t>(n_layers);
  std::vector<bool> is_delta;
  if (reader.has(kTypes)) {
    for (const std::string_view type : reader.texts(kTypes)) {
      if (type != "linear_attention" && type != "full_attention" && type != attention) {
        reader.refuse(ErrorCode::unsupported, kTypes, "linear_attention or full_attention", type);
      }
      is_delta.push_back(type == "linear_attention");
    }
  } else if (reader.has(kRecurrent)) {
    is_delta = reader.flags(kRecurrent);
    if (is_delta.size() > n) is_delta.resize(n);  // layers of other heads follow
  } else {
    constexpr Key kInterval = {"full_attention_interval", "full_attention_interval"};
    const int32_t interval = reader.count_or(kInterval, 4, 1000);
    for (int32_t i = 0; i < n_layers; ++i)
      is_delta.push_back((i + 1) % interval != 0);
  }
  if (is_delta.size() != n) {
    reader.refuse(ErrorCode::corrupt_file, reader.has(kTypes) ? kTypes : kRecurrent,
                  fmt::format("{} layers", n), std::to_string(is_delta.size()));
  }
  return is_delta;
}

float one_plus_norm_offset(const weights::Checkpoint& file) {
  if (file.format() == weights::Format::gguf) return 0.0F;
  for (const weights::Tensor& tensor : file.tensors()) {
    if (tensor.name.ends_with("linear_attn.conv1d.weight")) {
      return tensor.shape.back() == 1 ? 0.0F : 1.0F;
    }
  }
  return file.format() == weights::Format::mlx ? 0.0F : 1.0F;
}

DeltaWeights bind_delta(Binder& binder, const DeltaConfig& config) {
  const int32_t hidden = config.hidden;
  DeltaWeights w;
  w.norm = binder.norm(config.norm, hidden);
  if (binder.has(kQkvz)) {
    w.qkvz = binder.matrix(kQkvz, config.conv_width() + config.value_width(), hidden);
  } else {
    w.qkv = binder.matrix(kQkv, config.conv_width(), hidden);
    w.z = binder.matrix(kZ, config.value_width(), hidden);
  }
  if (binder.has(kBa)) {
    w.ba = binder.matrix(kBa, 2 * config.n_v, hidden);
  } else {
    w.b = binder.matrix(kB, config.n_v, hidden);
    w.a = binder.matrix(kA, config.n_v, hidden);
  }
  w.conv = binder.filter(kConv, config.conv_width(), config.taps);
  w.a_coefficient = config.log_decay ? binder.mapped(kDecay, config.n_v,
                                                     [](float a_log) { return -std::exp(a_log); })
                                     : binder.vector(kDecay, config.n_v);
  w.dt_bias = binder.vector(kDtBias, config.n_v);
  w.out_norm = binder.vector(kOutNorm, config.dv);
  w.out = binder.matrix(kOut, hidden, config.value_width());
  return w;
}

DeltaRecorder::DeltaRecorder(plan::Plan& plan, const DeltaConfig& config, plan::BufferId x,
                             plan::BufferId y)
    : plan_(plan), config_(config), x_(x), result_(result_of(x, y)) {
  qkv_ = plan.add_buffer({.name = "delta_qkv", .width = config.conv_width()});
  z_ = plan.add_buffer({.name = "delta_z", .width = config.value_width()});
  b_ = plan.add_buffer({.name = "delta_b", .width = config.n_v});
  a_ = plan.add_buffer({.name = "delta_a", .width = config.n_v});
  out_ = plan.add_buffer({.name = "delta_out", .width = config.value_width()});
}

plan::Recurrent DeltaRecorder::add_memory(const std::string& name, int64_t state_width,
                                          int64_t tape_width) {
  return {.state = plan_.add_state(
              {.name = name, .kind = plan::StateKind::recurrent, .width = state_width}),
          .tape = plan_.add_state(
              {.name = name + ".tape", .kind = plan::StateKind::tape, .width = tape_width})};
}

void DeltaRecorder::record_inputs(const DeltaWeights& w, const std::string& at) {
  plan::NormLinear linear = {
      .x = x_, .norm = {static_cast<bool>(w.norm), w.norm, config_.norm_eps}, .projections = {}};
  std::vector<plan::Copy> copies;
  const int32_t n_k = config_.n_k;
  const int32_t ratio = config_.n_v / n_k;  // value heads of a key head
  if (w.qkvz) {
    const int32_t values = ratio * config_.dv;
    const int32_t stride = 2 * config_.dk + 2 * values;
    const auto joined = plan_.scratch("delta_qkvz", int64_t{n_k} * stride);
    const auto part = [&](int32_t dim, int32_t offset) {
      return plan::Heads{joined, n_k, dim, stride, offset};
    };
    const int32_t keys = config_.key_width();
    linear.projections.push_back({w.qkvz, {}, joined});
    copies.push_back({part(config_.dk, 0), {qkv_, n_k, config_.dk, config_.dk, 0}});
    copies.push_back({part(config_.dk, config_.dk), {qkv_, n_k, config_.dk, config_.dk, keys}});
    copies.push_back({part(values, 2 * config_.dk), {qkv_, n_k, values, values, 2 * keys}});
    copies.push_back({part(values, 2 * config_.dk + values), plan_.heads(z_, n_k)});
  } else {
    linear.projections.push_back({w.qkv, {}, qkv_});
    linear.projections.push_back({w.z, {}, z_});
  }
  if (w.ba) {
    const auto joined = plan_.scratch("delta_ba", int64_t{2} * config_.n_v);
    linear.projections.push_back({w.ba, {}, joined});
    copies.push_back({{joined, n_k, ratio, 2 * ratio, 0}, plan_.heads(b_, n_k)});
    copies.push_back({{joined, n_k, ratio, 2 * ratio, ratio}, plan_.heads(a_, n_k)});
  } else {
    linear.projections.push_back({w.b, {}, b_});
    linear.projections.push_back({w.a, {}, a_});
  }
  plan_.add(std::move(linear), at + ".delta_in");
  for (const plan::Copy& copy : copies)
    plan_.add(copy, at + ".delta_split");
}

void DeltaRecorder::record(const DeltaWeights& w, int32_t layer) {
  const std::string at = std::to_string(layer);
  const int64_t conv_width = config_.conv_width();
  const int64_t n_v = config_.n_v;
  const plan::Recurrent conv_memory =
      add_memory("conv." + at, (config_.taps - 1) * conv_width, conv_width);
  const plan::Recurrent delta_memory = add_memory("delta." + at, n_v * config_.dv * config_.dk,
                                                  config_.key_width() + n_v * (config_.dv + 1));
  record_inputs(w, at);
  plan_.add(plan::DeltaMix{.qkv = qkv_,
                           .z = z_,
                           .a = a_,
                           .b = b_,
                           .n_k = config_.n_k,
                           .n_v = config_.n_v,
                           .dk = config_.dk,
                           .dv = config_.dv,
                           .conv = w.conv,
                           .taps = config_.taps,
                           .a_coefficient = w.a_coefficient,
                           .dt_bias = w.dt_bias,
                           .out_norm = {true, w.out_norm, config_.norm_eps},
                           .gate = config_.gate,
                           .head_map = config_.head_map,
                           .conv_memory = conv_memory,
                           .delta_memory = delta_memory,
                           .out = out_},
            at + ".delta");
  plan_.add(plan::LinearAdd{.in = out_, .weight = w.out, .bias = {}, .residual = result_},
            at + ".delta_out");
}

}  // namespace kapitsa::model
