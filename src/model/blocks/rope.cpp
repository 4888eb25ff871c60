#include "model/blocks/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kapitsa::model {
namespace {

// The pair index whose wavelength makes `rotations` turns over the original context (YaRN 3.2).
double pair_of_rotations(const RopeConfig& config, double rotations) {
  const double context = config.yarn->original_context;
  return config.dims * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.theta));
}

// 1: extrapolate (keep the frequency), 0: interpolate.
double yarn_keep(const RopeConfig& config, int32_t pair) {
  const double low = std::max(std::floor(pair_of_rotations(config, config.yarn->beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(pair_of_rotations(config, config.yarn->beta_slow)), config.dims - 1.0);
  const double ramp = (pair - low) / std::max(high - low, 0.001);
  return 1.0 - std::clamp(ramp, 0.0, 1.0);
}

double llama3_frequency(const RopeConfig::Llama3& rule, double frequency) {
  const double rotations = rule.original_context * frequency / (2.0 * std::numbers::pi);
  if (rotations < rule.low_frequency) return frequency / rule.factor;
  if (rotations > rule.high_frequency) return frequency;
  const double keep = (rotations - rule.low_frequency) / (rule.high_frequency - rule.low_frequency);
  return frequency * keep + frequency / rule.factor * (1.0 - keep);
}

// config.json keeps the rule in rope_scaling, newer files in rope_parameters with theta, below the
// kind of layer where kinds differ.
void read_hf_scaling(ConfigReader& reader, RopeConfig& config, const std::string& parameters) {
  const std::string newer_theta = parameters + "rope_theta";
  const bool newer = reader.has({"", newer_theta});
  const std::string at = newer ? parameters : "rope_scaling.";
  const auto number = [&](const char* key, double fallback, double low = 1e-6) {
    const std::string full = at + key;
    return static_cast<double>(reader.number_or({"", full}, fallback, low, 1e12));
  };
  const std::string theta_key = newer ? newer_theta : "rope_theta";
  config.theta = reader.number_or({"", theta_key}, 1e4, 1.0, 1e12);
  const std::string type_key = at + "rope_type";
  const std::string older_key = at + "type";
  const std::string type =
      reader.text_or({"", type_key}, reader.text_or({"", older_key}, "default"));
  const auto required = [&](const char* key) {
    const std::string full = at + key;
    return static_cast<double>(reader.number({"", full}, 1e-6, 1e12));
  };
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    // An object becomes the keys below it; a null, nothing at all.
    if (reader.has({"", object}))
      reader.refuse(ErrorCode::corrupt_file, {"", object}, "an object", "another value");
  }
  if (type == "linear") {
    config.linear = required("factor");
  } else if (type == "llama3") {
    config.llama3 = {required("factor"), required("low_freq_factor"), required("high_freq_factor"),
                     required("original_max_position_embeddings")};
    if (config.llama3->high_frequency <= config.llama3->low_frequency) {
      const std::string key = at + "high_freq_factor";
      reader.refuse(ErrorCode::corrupt_file, {"", key}, "more than low_freq_factor",
                    fmt::format("{}", config.llama3->high_frequency));
    }
  } else if (type == "yarn") {
    RopeConfig::Yarn yarn;
    yarn.factor = required("factor");
    yarn.original_context = number("original_max_position_embeddings", 0.0, 0.0);
    yarn.beta_fast = number("beta_fast", 32.0);
    yarn.beta_slow = number("beta_slow", 1.0);
    if (reader.has({"", at + "attention_factor"})) {
      yarn.attention_factor = number("attention_factor", 1.0);
    }
    if (yarn.original_context <= 0.0) {
      const std::string key = at + "original_max_position_embeddings";
      reader.refuse(ErrorCode::corrupt_file, {"", key}, "a number of tokens", "none");
    }
    for (const char* own : {"mscale", "mscale_all_dim"}) {
      const std::string key = at + own;
      if (reader.has({"", key}))
        reader.refuse(ErrorCode::unsupported, {"", key}, "no such key", "one");
    }
    const std::string truncate = at + "truncate";
    reader.expect_flag({"", truncate}, true);
    config.yarn = yarn;
  } else if (type == "proportional") {
    config.n_turning = config.dims / 2;
  } else if (type == "default") {
    // A factor without a rule that uses it: which one was meant cannot be told.
    const std::string key = at + "factor";
    if (number("factor", 1.0) != 1.0)
      reader.refuse(ErrorCode::unsupported, {"", key}, "1 where there is no rope_type", "another");
  } else {
    reader.refuse(ErrorCode::unsupported, {"", type_key},
                  "default, linear, llama3, yarn or proportional", type);
  }
}

void read_gguf_scaling(ConfigReader& reader, RopeConfig& config) {
  const std::string type = reader.text_or({"rope.scaling.type", ""}, "none");
  constexpr Key kOlderLinear = {"rope.scale_linear", ""};
  if (reader.number_or(kOlderLinear, 1.0, 0.0, 1e12) != 1.0F)
    reader.refuse(ErrorCode::unsupported, kOlderLinear, "1", "another");
  if (type == "linear") {
    config.linear = reader.number({"rope.scaling.factor", ""}, 1e-3, 1e6);
  } else if (type == "yarn") {
    RopeConfig::Yarn yarn;
    yarn.factor = reader.number({"rope.scaling.factor", ""}, 1.0, 1e6);
    yarn.original_context = reader.number({"rope.scaling.original_context_length", ""}, 1.0, 1e9);
    constexpr Key kAttention = {"rope.scaling.yarn_attn_factor", ""};
    const auto number_or = [&](const Key& key, double fallback) {
      return static_cast<double>(reader.number_or(key, fallback, 0.0, 1e12));
    };
    yarn.beta_fast = number_or({"rope.scaling.yarn_beta_fast", ""}, yarn.beta_fast);
    yarn.beta_slow = number_or({"rope.scaling.yarn_beta_slow", ""}, yarn.beta_slow);
    if (reader.has(kAttention)) yarn.attention_factor = number_or(kAttention, 1.0);
    config.yarn = yarn;
  } else if (type != "none") {
    reader.refuse(ErrorCode::unsupported, {"rope.scaling.type", ""}, "none, linear or yarn", type);
  }
}

}  // namespace

plan::Rope make_rope(const RopeConfig& config, plan::RopePairs pairs) {
  plan::Rope rope;
  rope.pairs = pairs;
  const int32_t n_pairs = config.dims / 2;
  rope.inv_freq.reserve(static_cast<size_t>(n_pairs));
  for (int32_t i = 0; i < n_pairs; ++i) {
    if (config.n_turning && i >= *config.n_turning) {
      rope.inv_freq.push_back(0.0F);
      continue;
    }
    double frequency = std::pow(config.theta, -2.0 * i / config.dims);
    if (!config.divisors.empty()) {
      frequency /= static_cast<double>(config.divisors[static_cast<size_t>(i)]);
    }
    if (config.llama3) frequency = llama3_frequency(*config.llama3, frequency);
    if (config.yarn) {
      const double keep = yarn_keep(config, i);
      frequency = frequency * keep + frequency / config.yarn->factor * (1.0 - keep);
    }
    rope.inv_freq.push_back(static_cast<float>(frequency / config.linear));
  }
  if (config.yarn) {
    const double factor = config.yarn->factor;
    rope.magnitude = static_cast<float>(
        config.yarn->attention_factor.value_or(factor > 1.0 ? 0.1 * std::log(factor) + 1.0 : 1.0));
  }
  return rope;
}

RopeConfig read_rope(ConfigReader& reader, int32_t head_dim, double share, RopeLayers layers) {
  const bool sliding = layers == RopeLayers::sliding;
  RopeConfig config;
  if (reader.is_gguf()) {
    const auto dims = static_cast<int32_t>(head_dim * share);
    const Key key = {sliding ? "rope.dimension_count_swa" : "rope.dimension_count", ""};
    config.dims = reader.count_or(key, std::max(dims, 1), head_dim);
    if (!sliding) read_gguf_scaling(reader, config);
    constexpr Key kSlidingTheta = {"rope.freq_base_swa", ""};
    constexpr Key kTheta = {"rope.freq_base", ""};
    config.theta = reader.number_or(sliding && reader.has(kSlidingTheta) ? kSlidingTheta : kTheta,
                                    1e4, 1.0, 1e12);
  } else {
    std::string parameters = "rope_parameters.";
    if (layers != RopeLayers::all) parameters += sliding ? "sliding_attention." : "full_attention.";
    const std::string own_share = parameters + "partial_rotary_factor";
    for (const std::string_view key :
         {std::string_view("partial_rotary_factor"), std::string_view(own_share)})
      share = static_cast<double>(reader.number_or({"", key}, share, 0.0, 1.0));
    config.dims = static_cast<int32_t>(head_dim * share);
    read_hf_scaling(reader, config, parameters);
    if (config.n_turning) config.dims = head_dim;
  }
  if (config.dims % 2 != 0) {
    reader.refuse(ErrorCode::corrupt_file, {"rope.dimension_count", "partial_rotary_factor"},
                  "an even number of rotary elements", std::to_string(config.dims));
  }
  return config;
}

}  // namespace kapitsa::model
