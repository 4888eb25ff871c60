#include "model/blocks/mamba_mixer.h"

#include "model/blocks/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kapitsa::model {
namespace {

constexpr TensorName kIn = {"blk.{}.ssm_in.weight", "model.layers.{}.mixer.in_proj.weight"};
constexpr TensorName kConv = {"blk.{}.ssm_conv1d.weight", "model.layers.{}.mixer.conv1d.weight"};
constexpr TensorName kConvBias = {"blk.{}.ssm_conv1d.bias", "model.layers.{}.mixer.conv1d.bias"};
constexpr TensorName kDtBias = {"blk.{}.ssm_dt.bias", "model.layers.{}.mixer.dt_bias"};
constexpr TensorName kA = {"blk.{}.ssm_a", "model.layers.{}.mixer.A_log"};
constexpr TensorName kD = {"blk.{}.ssm_d", "model.layers.{}.mixer.D"};
constexpr TensorName kOutNorm = {"blk.{}.ssm_norm.weight", "model.layers.{}.mixer.norm.weight"};
constexpr TensorName kOut = {"blk.{}.ssm_out.weight", "model.layers.{}.mixer.out_proj.weight"};

// [low, high] of config.json, in which high is mostly infinite: the number Infinity, or with newer
// transformers an object that has no number. GGUF has no limits.
void read_time_step_limits(ConfigReader& reader, MambaConfig& config) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr Key kLimit = {"", "time_step_limit"};
  double low = 0.0;
  double high = kMax;
  if (reader.has(kLimit)) {
    const auto limits = reader.file().numbers(reader.name(kLimit), 0.0, kMax);
    if (!limits || limits->size() != 2) {
      reader.refuse(ErrorCode::corrupt_file, kLimit, "two numbers that are not negative", "others");
      return;
    }
    low = (*limits)[0];
    high = (*limits)[1];
  } else {
    low = static_cast<double>(reader.number_or({"", "time_step_limit.0"}, low, 0.0, 1e30));
    high = static_cast<double>(reader.number_or({"", "time_step_limit.1"}, 3e38, 0.0, 3e38));
  }
  config.dt_low = static_cast<float>(std::min(low, 3e38));
  config.dt_high = static_cast<float>(std::min(high, 3e38));
}

}  // namespace

MambaConfig read_mamba(ConfigReader& reader, int32_t hidden, float norm_eps) {
  constexpr Key kHeads = {"ssm.time_step_rank", "mamba_num_heads"};
  constexpr Key kGroups = {"ssm.group_count", "n_groups"};
  constexpr Key kInner = {"ssm.inner_size", ""};
  constexpr Key kTaps = {"ssm.conv_kernel", "conv_kernel"};
  MambaConfig config;
  config.hidden = hidden;
  config.norm_eps = norm_eps;
  config.log_decay = !reader.is_gguf();
  config.n_heads = reader.count(kHeads, 4096);
  config.n_groups = reader.count(kGroups, config.n_heads);
  config.state = reader.count({"ssm.state_size", "ssm_state_size"}, 4096);
  config.taps = reader.count(kTaps, 64);
  if (reader.is_gguf()) {
    const int32_t inner = reader.count(kInner, 1 << 20);
    config.head_dim = std::max(inner / config.n_heads, 1);
    if (inner % config.n_heads != 0) {
      reader.refuse(ErrorCode::corrupt_file, kInner,
                    "a multiple of " + std::to_string(config.n_heads) + " heads",
                    std::to_string(inner));
    }
  } else {
    config.head_dim = reader.count({"", "mamba_head_dim"}, 4096);
    read_time_step_limits(reader, config);
  }
  if (config.taps < 2) {
    reader.refuse(ErrorCode::unsupported, kTaps, "2 or more taps", std::to_string(config.taps));
  }
  if (config.n_heads % config.n_groups != 0) {
    reader.refuse(ErrorCode::corrupt_file, kGroups,
                  "a divisor of " + std::to_string(config.n_heads) + " heads",
                  std::to_string(config.n_groups));
  }
  return config;
}

MambaWeights bind_mamba(Binder& binder, const MambaConfig& config) {
  MambaWeights w;
  const int64_t n_heads = config.n_heads;
  const int64_t group = config.inner() / config.n_groups;
  w.norm = binder.norm(kMixerNorm, config.hidden);
  w.in = binder.matrix(kIn, config.in_rows(), config.hidden);
  w.conv = binder.filter(kConv, config.conv_width(), config.taps);
  w.conv_bias = binder.optional_vector(kConvBias, config.conv_width());
  w.dt_bias = binder.vector(kDtBias, n_heads);
  if (!config.log_decay) {  // GGUF, which also cuts these three otherwise
    w.a = binder.vector(kA, {n_heads, 1});
    w.d = binder.vector(kD, {n_heads, 1});
    w.out_norm = binder.vector(kOutNorm, {config.n_groups, group});
  } else {
    w.a = binder.mapped(kA, n_heads, [](float log) { return -std::exp(log); });
    w.d = binder.vector(kD, n_heads);
    w.out_norm = binder.vector(kOutNorm, config.inner());
  }
  w.out = binder.matrix(kOut, config.hidden, config.inner());
  return w;
}

MambaRecorder::MambaRecorder(plan::Plan& plan, const MambaConfig& config, plan::BufferId x)
    : plan_(plan), config_(config), x_(x) {
  in_ = plan.add_buffer({.name = "mamba_in", .width = config.in_rows()});
  out_ = plan.add_buffer({.name = "mamba_out", .width = config.inner()});
}

void MambaRecorder::record(const MambaWeights& w, int32_t layer) {
  const std::string at = std::to_string(layer);
  const auto memory = [&](const char* name, int64_t state, int64_t tape) {
    const std::string full = name + at;
    return plan::Recurrent{
        plan_.add_state({.name = full, .kind = plan::StateKind::recurrent, .width = state}),
        plan_.add_state({.name = full + ".tape", .kind = plan::StateKind::tape, .width = tape})};
  };
  const int64_t n_heads = config_.n_heads;
  const int64_t p = config_.head_dim;
  const int64_t n = config_.state;
  const int64_t conv_width = config_.conv_width();

  plan_.add(plan::NormLinear{.x = x_,
                             .norm = {true, w.norm, config_.norm_eps},
                             .projections = {{w.in, {}, in_}}},
            at + ".mamba_in");
  plan_.add(
      plan::MambaMix{.in = in_,
                     .heads = config_.n_heads,
                     .p = config_.head_dim,
                     .groups = config_.n_groups,
                     .n = config_.state,
                     .conv = w.conv,
                     .conv_bias = w.conv_bias,
                     .taps = config_.taps,
                     .dt_bias = w.dt_bias,
                     .a = w.a,
                     .d = w.d,
                     .dt_low = config_.dt_low,
                     .dt_high = config_.dt_high,
                     .out_norm = {true, w.out_norm, config_.norm_eps},
                     .conv_memory = memory("conv.", (config_.taps - 1) * conv_width, conv_width),
                     .ssm_memory =
                         memory("ssm.", n_heads * p * n, n_heads * (p + 1) + config_.n_groups * n),
                     .out = out_},
      at + ".mamba");
  plan_.add(plan::LinearAdd{.in = out_, .weight = w.out, .bias = {}, .residual = {.out = x_}},
            at + ".mamba_out");
}

}  // namespace kapitsa::model
