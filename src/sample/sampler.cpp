#include "sample/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace kapitsa::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();

bool has_penalties(const SamplerParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

void apply_mask(std::span<const uint32_t> allowed, std::span<float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    if ((allowed[token / 32] >> (token % 32) & 1u) == 0) logits[token] = -kInfinity;
  }
}

void apply_penalties(const SamplerParams& params, const SampleInput& input, std::span<float> logits,
                     SamplerScratch& scratch) {
  scratch.counts.resize(logits.size());
  scratch.counted.clear();
  const auto n_history = static_cast<int64_t>(input.history.size());
  const int64_t window =
      params.penalty_window < 0 ? n_history : std::min(params.penalty_window, n_history);
  for (auto i = static_cast<size_t>(n_history - window); i < input.history.size(); ++i) {
    const int32_t token = input.history[i];
    // A prompt may hold ids that the model has no logit for, such as image placeholders.
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    SamplerScratch::Count& count = scratch.counts[static_cast<size_t>(token)];
    if (count.in_window++ == 0) scratch.counted.push_back(token);
    if (i >= input.n_prompt) ++count.generated;
  }
  for (const int32_t token : scratch.counted) {
    SamplerScratch::Count& count = scratch.counts[static_cast<size_t>(token)];
    float& logit = logits[static_cast<size_t>(token)];
    // Keskar et al. 2019, "CTRL", section 4.1, with the sign rule that everyone uses.
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(count.generated);
    if (count.generated > 0) logit -= params.presence_penalty;
    count = {};
  }
}

// The logits after mask, bias and penalties: those of the input itself when none applies.
std::span<const float> adjust(const SamplerParams& params, const SampleInput& input,
                              SamplerScratch& scratch) {
  if (input.allowed.empty() && params.logit_bias.empty() && !has_penalties(params))
    return input.logits;
  scratch.logits.assign(input.logits.begin(), input.logits.end());
  if (!input.allowed.empty()) apply_mask(input.allowed, scratch.logits);
  for (const auto& [token, bias] : params.logit_bias)
    scratch.logits[static_cast<size_t>(token)] += bias;
  if (has_penalties(params)) apply_penalties(params, input, scratch.logits, scratch);
  return scratch.logits;
}

// The best token so far of a draw. Computes only what can win: the noise has an upper bound
// overall, and a closer one by the leading zeros of its bits.
class Draw {
public:
  Draw(const SamplerParams& params, const SampleInput& input, float inverse_temperature)
      : seed_(params.seed), choice_(params.choice), position_(input.position),
        stream_(input.stream), inverse_temperature_(inverse_temperature) {
    needed_.fill(-kInfinity);
  }

  // False when no noise could make a token with this logit win.
  bool may_win(float logit) const { return !(logit < needed_.back()); }

  void consider(Candidate candidate) {
    consider(
        candidate.logit, candidate.token,
        noise_bits(seed_, choice_, position_, static_cast<uint32_t>(candidate.token), stream_));
  }

  // Considers the four tokens of one noise group.
  void consider_group(uint32_t group, const std::array<float, 4>& logits, float cutoff) {
    const float highest = std::max(std::max(logits[0], logits[1]), std::max(logits[2], logits[3]));
    if (highest < cutoff || !may_win(highest)) return;
    const PhiloxWords words = noise_words(seed_, choice_, position_, group, stream_);
    const std::array<uint32_t, 4> bits{words.x, words.y, words.z, words.w};
    for (size_t i = 0; i < 4; ++i) {
      if (logits[i] >= cutoff) consider(logits[i], static_cast<int32_t>(4 * group + i), bits[i]);
    }
  }

  int32_t token() const { return token_; }

private:
  void consider(float logit, int32_t token, uint32_t bits) {
    if (logit < needed_[static_cast<size_t>(std::countl_zero(bits))]) return;
    const float score = gumbel_score(logit, inverse_temperature_, gumbel_from_bits(bits));
    if (score < best_score_ || (score == best_score_ && token > token_)) return;
    best_score_ = score;
    token_ = token;
    update_needed();
  }

  // A logit below needed_[z] loses with any noise whose bits have z leading zeros. Comparing logits
  // spares the sum per token; the slack is far above the rounding of scores and of this.
  void update_needed() {
    const double best = best_score_;
    const double slack = 1e-6 * (std::abs(best) + 30);
    for (size_t zeros = 0; zeros < needed_.size(); ++zeros) {
      const double bound = gumbel_bound(static_cast<int>(zeros));
      needed_[zeros] =
          static_cast<float>((best - bound - slack) / static_cast<double>(inverse_temperature_));
    }
  }

  uint64_t seed_;
  uint32_t choice_;
  uint32_t position_;
  uint32_t stream_;
  float inverse_temperature_;
  float best_score_ = -kInfinity;
  int32_t token_ = std::numeric_limits<int32_t>::max();
  std::array<float, 33> needed_;
};

int32_t draw(const SamplerParams& params, const SampleInput& input, std::span<const float> logits,
             Candidate peak, SamplerScratch& scratch) {
  const float scale = 1.0f / params.temperature;
  // p >= min_p * p_max, as a bound on logits; log_poly rather than std::log for the same bits
  // everywhere.
  const float cutoff = params.min_p < kSmallestNormal
                           ? -kInfinity
                           : peak.logit + log_poly(params.min_p) * params.temperature;
  const bool uses_top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size();
  Draw draw(params, input, scale);
  draw.consider(peak);
  if (!uses_top_k && params.top_p >= 1.0f) {
    for (size_t token = 0; token < logits.size(); token += 4) {
      std::array<float, 4> group{-kInfinity, -kInfinity, -kInfinity, -kInfinity};
      std::copy_n(logits.begin() + static_cast<int64_t>(token),
                  std::min<size_t>(4, logits.size() - token), group.begin());
      draw.consider_group(static_cast<uint32_t>(token / 4), group, cutoff);
    }
    return draw.token();
  }
  std::vector<Candidate>& kept = scratch.candidates;
  if (uses_top_k) {
    take_first(logits, static_cast<size_t>(params.top_k), kept);
    if (params.top_p < 1.0f) {
      double sum = 0;
      for (const Candidate& c : kept)
        sum += static_cast<double>(exp_negative((c.logit - peak.logit) * scale));
      const double mass = static_cast<double>(params.top_p) * sum;
      kept.resize(std::min(kept.size(), sort_until(kept, peak.logit, scale, mass)));
    }
  } else {
    take_nucleus(logits, peak.logit, scale, params.top_p, kept);
  }
  for (const Candidate& c : kept) {  // in falling order
    if (c.logit < cutoff || !draw.may_win(c.logit)) break;
    draw.consider(c);
  }
  return draw.token();
}

void add_logprobs(const SamplerParams& params, std::span<const float> logits, Candidate peak,
                  SamplerScratch& scratch, Sampled& sampled) {
  const double log_sum =
      static_cast<double>(peak.logit) + std::log(sum_of_exp(logits, peak.logit, 1.0f));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  sampled.logprob = logprob(logits[static_cast<size_t>(sampled.token)]);
  take_first(logits, static_cast<size_t>(params.n_logprobs), scratch.candidates);
  scratch.top_logprobs.clear();
  for (const Candidate& c : scratch.candidates)
    scratch.top_logprobs.push_back({c.token, logprob(c.logit)});
  sampled.top_logprobs = scratch.top_logprobs;
}

// Why no token can be drawn; nullopt when one can.
std::optional<Error> find_fault(std::span<const float> logits, const Peak& peak,
                                uint32_t position) {
  if (!peak.has_nan && std::isfinite(peak.best.logit)) return std::nullopt;
  if (!peak.has_nan && peak.best.logit < 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("position {}: no token can be drawn: all {} logits are -infinity "
                             "after grammar and logit_bias",
                             position, logits.size())};
  const auto bad = std::find_if(logits.begin(), logits.end(),
                                [](float x) { return std::isnan(x) || x == kInfinity; });
  return Error{ErrorCode::device_failed,
               fmt::format("position {}: the logit of token {} is {}: the model's weights or the "
                           "computation are broken",
                           position, bad - logits.begin(), *bad)};
}

}  // namespace

Result<Sampled> sample_token(const SamplerParams& params, const SampleInput& input,
                             SamplerScratch& scratch) {
  const size_t n_vocab = input.logits.size();
  if (n_vocab == 0) return Error{ErrorCode::invalid_argument, "no logits to draw a token from"};
  if (!input.allowed.empty() && input.allowed.size() < (n_vocab + 31) / 32)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the grammar mask has {} words, expected {} for {} tokens",
                             input.allowed.size(), (n_vocab + 31) / 32, n_vocab)};
  const std::span<const float> logits = adjust(params, input, scratch);
  const Peak peak = find_peak(logits);
  if (auto fault = find_fault(logits, peak, input.position)) return *std::move(fault);
  Sampled sampled;
  sampled.token = params.temperature == 0.0f ? peak.best.token
                                             : draw(params, input, logits, peak.best, scratch);
  if (params.n_logprobs >= 0) add_logprobs(params, logits, peak.best, scratch, sampled);
  return sampled;
}

}  // namespace kapitsa::sample
