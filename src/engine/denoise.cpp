#include "engine/denoise.h"

#include "base/noise.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kapitsa::engine {
namespace {

using model::CanvasDiffusion;
using model::MaskedDiffusion;

const MaskedDiffusion* masked_rule(const model::Diffusion& diffusion) {
  return std::get_if<MaskedDiffusion>(&diffusion.rule);
}

// How many of n_open places must settle in this step, so that those left do in time.
int32_t fewest_of(const MaskedDiffusion& rule, int32_t n_open, int32_t step) {
  const int32_t steps_left = std::max(rule.steps - step, 1);
  return (n_open + steps_left - 1) / steps_left;
}

}  // namespace

Denoiser::Denoiser(const model::Diffusion& diffusion, int32_t n_vocab)
    : diffusion_(diffusion), n_vocab_(n_vocab) {
  if (const MaskedDiffusion* rule = masked_rule(diffusion_)) {
    allowed_.assign((static_cast<size_t>(n_vocab) + 31) / 32, ~0U);
    allowed_[static_cast<size_t>(rule->mask_token / 32)] &= ~(1U << (rule->mask_token % 32));
  }
}

int32_t Denoiser::first_of_block(int32_t n_tokens) const {
  return masked_rule(diffusion_) != nullptr ? n_tokens - n_tokens % diffusion_.block : n_tokens;
}

void Denoiser::open(const DenoiseParams& params, std::span<const int32_t> tokens,
                    Block& block) const {
  const auto n_tokens = static_cast<int32_t>(tokens.size());
  const int32_t first = first_of_block(n_tokens);
  const MaskedDiffusion* rule = masked_rule(diffusion_);
  std::vector<float> conditions = std::move(block.conditions);  // its memory
  block = {};
  block.first = first;
  block.n_given = n_tokens - first;
  block.n_settled = block.n_given;
  block.tokens.assign(static_cast<size_t>(diffusion_.block),
                      rule != nullptr ? rule->mask_token : 0);
  std::copy(tokens.begin() + first, tokens.end(), block.tokens.begin());
  if (rule != nullptr) return;
  for (int32_t place = 0; place < block.size(); ++place)
    block.tokens[static_cast<size_t>(place)] =
        random_token(params.sampling, first + place, block.step);
  block.likeliest.assign(block.tokens.size(), -1);
  conditions.assign(block.tokens.size() * static_cast<size_t>(n_vocab_), 0.0F);
  block.conditions = std::move(conditions);
}

bool Denoiser::is_masked(const Block& block, int32_t place) const {
  return place >= block.n_given &&
         block.tokens[static_cast<size_t>(place)] == masked_rule(diffusion_)->mask_token;
}

void Denoiser::wanted(const Block& block, std::vector<int32_t>& places) const {
  const MaskedDiffusion* rule = masked_rule(diffusion_);
  places.clear();
  for (int32_t place = block.n_given; place < block.size(); ++place) {
    if (rule == nullptr || rule->edit_threshold || is_masked(block, place)) places.push_back(place);
  }
}

Status Denoiser::step(const DenoiseParams& params, std::span<const float> logits, Block& block) {
  wanted(block, places_);
  KAPITSA_CHECK(logits.size() == places_.size() * static_cast<size_t>(n_vocab_),
                "one row of logits for each wanted place");
  const MaskedDiffusion* masked = masked_rule(diffusion_);
  const Status stepped = masked != nullptr ? step_masked(*masked, params, logits, block)
                                           : step_canvas(std::get<CanvasDiffusion>(diffusion_.rule),
                                                         params, logits, block);
  ++block.step;
  return stepped;
}

Result<Denoiser::Guess> Denoiser::guess(const sample::SamplerParams& params, const Block& block,
                                        int32_t place, std::span<const float> logits) {
  sample::SampleInput input;
  input.logits = logits;
  input.position = static_cast<uint32_t>(block.first + place);
  input.stream = kStreamDenoise + static_cast<uint32_t>(block.step);
  input.allowed = allowed_;
  KAPITSA_ASSIGN(const sample::Sampled drawn, sample::sample_token(params, input, scratch_));
  const double probability = drawn.logprob ? std::exp(static_cast<double>(*drawn.logprob)) : 0.0;
  return Guess{place, drawn.token, probability};
}

Status Denoiser::step_masked(const MaskedDiffusion& rule, const DenoiseParams& params,
                             std::span<const float> logits, Block& block) {
  const double threshold =
      params.threshold ? static_cast<double>(*params.threshold) : rule.threshold;
  sample::SamplerParams drawing = params.sampling;
  drawing.n_logprobs = 0;
  sample::SamplerParams editing = drawing;
  editing.temperature = 0.0F;

  open_guesses_.clear();
  bool changed = false;
  for (size_t i = 0; i < places_.size(); ++i) {
    const bool open = is_masked(block, places_[i]);
    const auto row =
        logits.subspan(i * static_cast<size_t>(n_vocab_), static_cast<size_t>(n_vocab_));
    KAPITSA_ASSIGN(const Guess found, guess(open ? drawing : editing, block, places_[i], row));
    if (open) {
      open_guesses_.push_back(found);
      continue;
    }
    int32_t& token = block.tokens[static_cast<size_t>(found.place)];
    if (found.token == token || found.probability <= *rule.edit_threshold) continue;
    token = found.token;
    changed = true;
  }

  const auto n_open = static_cast<int32_t>(open_guesses_.size());
  std::ranges::stable_sort(open_guesses_, std::greater(), &Guess::probability);
  int32_t n_settling = 0;
  if (n_open > 0) n_settling = fewest_of(rule, n_open, block.step);
  while (n_settling < n_open &&
         open_guesses_[static_cast<size_t>(n_settling)].probability > threshold)
    ++n_settling;
  for (int32_t i = 0; i < n_settling; ++i) {
    const Guess& settling = open_guesses_[static_cast<size_t>(i)];
    block.tokens[static_cast<size_t>(settling.place)] = settling.token;
  }

  if (rule.edit_threshold) {
    if (n_open == 0 && (!changed || ++block.n_edits >= rule.edit_steps))
      block.n_settled = block.size();
    return {};
  }
  while (block.n_settled < block.size() && !is_masked(block, block.n_settled))
    ++block.n_settled;
  return {};
}

int32_t Denoiser::random_token(const sample::SamplerParams& params, int32_t position,
                               int32_t step) const {
  const uint32_t bits = noise_bits(params.seed, params.choice, static_cast<uint32_t>(position), 0,
                                   kStreamCanvas + static_cast<uint32_t>(step));
  return static_cast<int32_t>((uint64_t{bits} * static_cast<uint64_t>(n_vocab_)) >> 32);
}

double Denoiser::condition(const sample::SamplerParams& params, float temperature,
                           std::span<const float> logits, std::span<float> probabilities) {
  biased_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias)
    biased_[static_cast<size_t>(token)] += bias;
  const float largest = sample::find_peak(biased_).best.logit;
  const float scale = 1.0F / temperature;
  double sum = 0.0;
  double weighted = 0.0;  // sum of e^x x
  for (size_t v = 0; v < biased_.size(); ++v) {
    const float x = (biased_[v] - largest) * scale;
    probabilities[v] = sample::exp_negative(x);
    sum += static_cast<double>(probabilities[v]);
    weighted += static_cast<double>(probabilities[v]) * static_cast<double>(x);
  }
  const auto share = static_cast<float>(1.0 / sum);
  for (float& probability : probabilities)
    probability *= share;
  return std::log(sum) - weighted / sum;
}

Status Denoiser::step_canvas(const CanvasDiffusion& rule, const DenoiseParams& params,
                             std::span<const float> logits, Block& block) {
  const double left = rule.steps - block.step;
  const auto schedule =
      static_cast<float>(rule.temperature_low + (rule.temperature_high - rule.temperature_low) *
                                                    left / static_cast<double>(rule.steps));
  sample::SamplerParams drawing = params.sampling;
  if (drawing.temperature > 0.0F)
    drawing.temperature = std::max(drawing.temperature * schedule, sample::kMinTemperature);
  drawing.n_logprobs = -1;
  sample::SamplerParams greedy = drawing;
  greedy.temperature = 0.0F;
  const float temperature = drawing.temperature > 0.0F ? drawing.temperature : schedule;

  const auto n_vocab = static_cast<size_t>(n_vocab_);
  std::vector<int32_t> likeliest;
  std::vector<int32_t> drawn;
  entropies_.clear();
  for (size_t place = 0; place < places_.size(); ++place) {
    const auto row = logits.subspan(place * n_vocab, n_vocab);
    KAPITSA_ASSIGN(const Guess best, guess(greedy, block, places_[place], row));
    KAPITSA_ASSIGN(const Guess draw, guess(drawing, block, places_[place], row));
    likeliest.push_back(best.token);
    drawn.push_back(draw.token);
    entropies_.push_back(condition(drawing, temperature, row,
                                   std::span(block.conditions).subspan(place * n_vocab, n_vocab)));
  }

  block.n_unchanged = likeliest == block.likeliest ? block.n_unchanged + 1 : 0;
  block.likeliest = likeliest;
  const double mean = std::accumulate(entropies_.begin(), entropies_.end(), 0.0) /
                      static_cast<double>(entropies_.size());
  const bool sure = block.n_unchanged >= rule.stable_steps && mean < rule.confident_entropy;
  if (sure || block.step + 1 >= rule.steps) {
    block.tokens = std::move(likeliest);
    block.n_settled = block.size();
    return {};
  }

  // Places_ by entropy: the accepted ones are so sure that they are nearly independent.
  std::vector<int32_t> order = places_;
  std::ranges::stable_sort(order, {},
                           [&](int32_t place) { return entropies_[static_cast<size_t>(place)]; });
  double before = 0.0;  // entropy of those accepted so far
  for (const int32_t place : order) {
    const auto p = static_cast<size_t>(place);
    block.tokens[p] = before <= rule.entropy_bound
                          ? drawn[p]
                          : random_token(params.sampling, block.first + place, block.step + 1);
    before += entropies_[p];
  }
  return {};
}

}  // namespace kapitsa::engine
