#include "model/blocks/rope.h"

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

}  // namespace

plan::Rope make_rope(const RopeConfig& config, plan::RopePairs pairs) {
  plan::Rope rope;
  rope.pairs = pairs;
  const int32_t n_pairs = config.dims / 2;
  rope.inv_freq.reserve(static_cast<size_t>(n_pairs));
  for (int32_t i = 0; i < n_pairs; ++i) {
    double frequency = std::pow(config.theta, -2.0 * i / config.dims);
    if (!config.divisors.empty()) {
      frequency /= static_cast<double>(config.divisors[static_cast<size_t>(i)]);
    }
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

Result<RopeConfig> read_gguf_rope(const weights::Checkpoint& checkpoint, const std::string& arch,
                                  int32_t head_dim) {
  const std::string prefix = arch + ".rope.";
  RopeConfig config;
  KAPITSA_ASSIGN(const int64_t dims,
                 checkpoint.integer_or(prefix + "dimension_count", head_dim, 2, head_dim));
  if (dims % 2 != 0) {
    return Error{ErrorCode::corrupt_file, checkpoint.path().string() + ": " + prefix +
                                              "dimension_count: expected an even number, found " +
                                              std::to_string(dims)};
  }
  config.dims = static_cast<int32_t>(dims);
  KAPITSA_ASSIGN(config.theta, checkpoint.number_or(prefix + "freq_base", 1e4, 1.0, 1e12));
  KAPITSA_ASSIGN(const std::string scaling, checkpoint.string_or(prefix + "scaling.type", "none"));
  if (scaling == "linear") {
    KAPITSA_ASSIGN(config.linear, checkpoint.number(prefix + "scaling.factor", 1e-3, 1e6));
  } else if (scaling == "yarn") {
    RopeConfig::Yarn yarn;
    KAPITSA_ASSIGN(yarn.factor, checkpoint.number(prefix + "scaling.factor", 1.0, 1e6));
    KAPITSA_ASSIGN(yarn.original_context,
                   checkpoint.number(prefix + "scaling.original_context_length", 1.0, 1e9));
    config.yarn = yarn;
  } else if (scaling != "none") {
    return Error{ErrorCode::unsupported,
                 checkpoint.path().string() + ": " + prefix +
                     "scaling.type: expected none, linear or yarn, found '" + scaling + "'"};
  }
  return config;
}

}  // namespace kapitsa::model
