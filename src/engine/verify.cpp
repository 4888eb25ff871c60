// The facade's verify(): reads every weight, compares a few layers with the reference, and measures
// the perplexity of a known text.
#include "kapitsa/verify.h"

#include "base/system.h"
#include "engine/loader.h"
#include "engine/probe.h"
#include "engine/prompt.h"
#include "engine/verify_text.h"
#include "engine/weight_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

namespace kapitsa {
namespace {

using engine::Loaded;
using engine::Probe;

Check weights_check(const weights::Checkpoint& file, int threads) {
  const engine::WeightCheck found = engine::check_weights(file, threads);
  Check check{.name = "weights", .passed = found.problem.empty(), .detail = found.problem};
  if (!check.passed) return check;
  check.value = static_cast<double>(found.n_values);
  check.detail = fmt::format("{} tensors, {} values, all finite", found.n_tensors, found.n_values);
  if (found.n_skipped > 0)
    check.detail += fmt::format("; {} tensors of other types", found.n_skipped);
  return check;
}

// --- Layers: against the reference -------------------------------------------------------------

// The layer of a step: labels of a layer's steps begin with its number and a dot.
int layer_of(const std::string& label) {
  int layer = -1;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), layer);
  return error == std::errc() && end != label.data() + label.size() && *end == '.' ? layer : -1;
}

// Routine 0 with only these layers: what goes through the model is then not its own, but every step
// still has its weights and shapes.
plan::Plan with_layers(const plan::Plan& plan, const std::set<int>& layers) {
  plan::Plan part;
  for (const plan::Buffer& buffer : plan.buffers())
    part.add_buffer(buffer);
  for (const plan::Weight& weight : plan.weights())
    part.add_weight(weight);
  for (const plan::State& state : plan.states())
    part.add_state(state);
  part.logits = plan.logits;
  part.n_vocab = plan.n_vocab;
  part.n_history = plan.n_history;
  part.begin_routine("part");
  for (const plan::Step& step : plan.routines()[0].steps) {
    const int layer = layer_of(step.label);
    if (layer < 0 || layers.contains(layer)) part.add(step.op, step.label);
  }
  return part;
}

Result<std::vector<float>> logits_of(backend::Device& device, const plan::Plan& plan,
                                     std::span<const int32_t> tokens,
                                     backend::ComputeMode compute) {
  KAPITSA_ASSIGN(Probe probe, Probe::open(device, plan,
                                          {.max_rows = static_cast<int32_t>(tokens.size()),
                                           .compute = compute}));
  KAPITSA_TRY(probe.run(plan::Phase::prefill, tokens));
  KAPITSA_ASSIGN(const std::span<const float> values, probe.read(plan.logits));
  return std::vector<float>(values.begin(), values.end());
}

// rms(found - expected) / rms(expected)
double relative_rms(const std::vector<float>& expected, const std::vector<float>& found) {
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double delta = double{found[i]} - double{expected[i]};
    difference += delta * delta;
    size += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(difference / size);
}

Result<Check> compare_layers(const VerifyOptions& options, Loaded& loaded,
                             std::span<const int32_t> tokens) {
  // What the arithmetic may add up to over three layers; a wrong scale or a swapped row is far
  // more.
  constexpr double kF32Limit = 1e-3;
  constexpr double kFastLimit = 0.1;
  Check check{.name = "layers"};
  const int last = loaded.info.n_layers - 1;
  const plan::Plan part = with_layers(loaded.model->plan, {0, last / 2, last});
  KAPITSA_ASSIGN(const auto reference, backend::open_device("ref", {}));
  KAPITSA_ASSIGN(const std::vector<float> expected,
                 logits_of(*reference, part, tokens, backend::ComputeMode::f32));
  KAPITSA_ASSIGN(const std::vector<float> exact,
                 logits_of(*loaded.device, part, tokens, backend::ComputeMode::f32));
  const double exact_error = relative_rms(expected, exact);
  double error = exact_error;
  check.limit = kF32Limit;
  check.detail = fmt::format("layers 0, {}, {} against the reference: error {:.1e} in f32",
                             last / 2, last, exact_error);
  if (options.load.compute == Compute::fast) {
    KAPITSA_ASSIGN(const std::vector<float> fast,
                   logits_of(*loaded.device, part, tokens, backend::ComputeMode::fast));
    error = relative_rms(expected, fast);
    check.limit = kFastLimit;
    check.detail += fmt::format(", {:.1e} as it runs", error);
  }
  check.value = error;
  check.passed = exact_error <= kF32Limit && error <= check.limit;  // false for NaN, too
  return check;
}

// --- Perplexity --------------------------------------------------------------------------------

// -log p(token) under softmax(logits), in nats.
double surprise(std::span<const float> logits, int32_t token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits)
    sum += std::exp(double{logit} - largest);
  return largest + std::log(sum) - double{logits[static_cast<size_t>(token)]};
}

Result<Check> measure_perplexity(const VerifyOptions& options, Loaded& loaded,
                                 const std::vector<int32_t>& tokens) {
  // Rounding in another order moves a perplexity by less; another quantisation by more.
  constexpr double kTolerance = 0.02;
  Check check{.name = "perplexity"};
  if (loaded.model->diffusion) {
    check.passed = true;
    check.detail = "not defined: the model writes blocks, not token by token";
    return check;
  }
  const plan::Plan& plan = loaded.model->plan;
  const auto compute = loaded.limits.compute;
  KAPITSA_ASSIGN(Probe probe, Probe::open(*loaded.device, plan,
                                          {.max_tokens = static_cast<int32_t>(tokens.size()),
                                           .compute = compute}));
  const auto n_vocab = static_cast<size_t>(plan.n_vocab);
  double total = 0.0;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += plan::kGrid) {
    const size_t n = std::min<size_t>(plan::kGrid, tokens.size() - begin);
    KAPITSA_TRY(probe.run(plan::Phase::prefill, std::span(tokens).subspan(begin, n)));
    KAPITSA_ASSIGN(const std::span<const float> logits, probe.read(plan.logits));
    for (size_t row = 0; row < n && begin + row + 1 < tokens.size(); ++row)
      total += surprise(logits.subspan(row * n_vocab, n_vocab), tokens[begin + row + 1]);
  }
  const double perplexity = std::exp(total / static_cast<double>(tokens.size() - 1));
  check.value = perplexity;
  check.detail = fmt::format("{:.3f} over {} tokens", perplexity, tokens.size() - 1);
  if (options.known_perplexity > 0.0) {
    check.detail += fmt::format("; known: {:.3f}", options.known_perplexity);
    check.passed = std::abs(perplexity / options.known_perplexity - 1.0) <= kTolerance;
  } else {
    check.detail += "; no known value for this model";
    if (perplexity > static_cast<double>(n_vocab)) check.detail += "; worse than guessing";
    check.passed = std::isfinite(perplexity);
  }
  return check;
}

}  // namespace

Result<std::vector<Check>> verify(const VerifyOptions& options) {
  std::vector<Check> checks;
  const auto finish = [&](const char* name, Result<Check> result) {
    checks.push_back(result ? std::move(*result) : Check{.name = name});
    if (!result) checks.back().detail = result.error().message;
    if (options.finished) options.finished(checks.back());
  };
  KAPITSA_ASSIGN(Loaded loaded, engine::load(options.load));
  KAPITSA_ASSIGN(std::vector<int32_t> text,
                 engine::prompt_tokens(loaded, TextPrompt{engine::kVerifyText, false}));
  text.resize(std::min(text.size(), static_cast<size_t>(loaded.info.context_trained)));
  finish("weights", weights_check(*loaded.file, options.load.threads > 0 ? options.load.threads
                                                                         : available_cores()));
  const size_t n_compared = std::min<size_t>(text.size(), 8);
  finish("layers", compare_layers(options, loaded, std::span(text).first(n_compared)));
  finish("perplexity", measure_perplexity(options, loaded, text));
  return checks;
}

}  // namespace kapitsa
