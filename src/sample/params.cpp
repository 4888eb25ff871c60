#include "sample/params.h"

#include <fmt/format.h>

#include <string_view>

namespace kapitsa::sample {
namespace {

template <typename T>
Error out_of_range(std::string_view field, std::string_view expected, T found) {
  return {ErrorCode::invalid_argument,
          fmt::format("{}: expected {}, found {}", field, expected, found)};
}

// False for NaN.
bool between(float x, float low, float high) {
  return x >= low && x <= high;
}

}  // namespace

Status validate(const SamplerParams& params, int64_t n_vocab) {
  if (params.temperature != 0.0f && !between(params.temperature, kMinTemperature, 100.0f))
    return out_of_range("temperature", "0 or a number from 0.0001 to 100", params.temperature);
  if (params.top_k < 0) return out_of_range("top_k", "0 (off) or more", params.top_k);
  if (!between(params.top_p, 0.0f, 1.0f))
    return out_of_range("top_p", "a number from 0 to 1", params.top_p);
  if (!between(params.min_p, 0.0f, 1.0f))
    return out_of_range("min_p", "a number from 0 to 1", params.min_p);
  if (!between(params.repetition_penalty, 0.01f, 100.0f))
    return out_of_range("repetition_penalty", "a number from 0.01 to 100",
                        params.repetition_penalty);
  if (!between(params.frequency_penalty, -2.0f, 2.0f))
    return out_of_range("frequency_penalty", "a number from -2 to 2", params.frequency_penalty);
  if (!between(params.presence_penalty, -2.0f, 2.0f))
    return out_of_range("presence_penalty", "a number from -2 to 2", params.presence_penalty);
  if (params.penalty_window < -1)
    return out_of_range("penalty_window", "-1 (all tokens) or more", params.penalty_window);
  if (params.n_logprobs < -1 || params.n_logprobs > kMaxLogprobs)
    return out_of_range("top_logprobs", fmt::format("0 to {}", kMaxLogprobs), params.n_logprobs);
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= n_vocab)
      return out_of_range("logit_bias", fmt::format("token ids from 0 to {}", n_vocab - 1), token);
    if (!between(bias, -100.0f, 100.0f))
      return out_of_range(fmt::format("logit_bias of token {}", token), "a number from -100 to 100",
                          bias);
  }
  return {};
}

}  // namespace kapitsa::sample
