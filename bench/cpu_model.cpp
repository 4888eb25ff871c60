// Whole decoders on the CPU backend: prefill and decode speed, and how far the fast mode's logits
// are from those of the f32 mode. Not a test: it prints numbers for a person.
//
//   bench_cpu_model FILE.gguf [--threads N] [--isa NAME] [--text TOKENS.gguf] [--repeats N]
//
// --text: the token ids of its I32 tensor `tokens` instead of a made-up text, for the accuracy.
#include "backend/backend.h"
#include "must.h"
#include "support/decoder.h"
#include "weights/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

namespace kapitsa::bench {
namespace {

using backend::ComputeMode;

constexpr int32_t kContext = 1024;
constexpr int32_t kPrompt = 512;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Setup {
  backend::Device& device;
  const test::Decoder& decoder;
  std::vector<int32_t> text;

  int64_t vocab() const { return decoder.shape.vocab; }
};

// One sequence of the setup's text.
class Session {
public:
  Session(const Setup& setup, ComputeMode mode, int32_t max_outputs)
      : setup_(setup),
        program_(must(setup.device.load(setup.decoder.plan, {.max_rows = kPrompt,
                                                             .max_outputs = max_outputs,
                                                             .n_pages = kContext / plan::kGrid,
                                                             .compute = mode}))),
        pages_(kContext / plan::kGrid) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  void restart() { committed_ = 0; }

  // Seconds of one pass; the last row is the only output unless `all`.
  double run(int32_t n_rows, plan::Phase phase, bool all = false) {
    std::vector<int32_t> tokens, positions, outputs;
    const std::vector<int32_t> sequences(static_cast<size_t>(n_rows), 0);
    for (int32_t i = 0; i < n_rows; ++i) {
      positions.push_back(committed_ + i);
      tokens.push_back(setup_.text[static_cast<size_t>(committed_ + i)]);
      if (all || i == n_rows - 1) outputs.push_back(i);
    }
    const plan::SequenceView view = {.pages = pages_, .committed = committed_};
    const double start = seconds_now();
    must(program_->run({.phase = phase,
                        .tokens = tokens,
                        .positions = positions,
                        .sequences = sequences,
                        .slots = positions,  // page i of the sequence is page i
                        .outputs = outputs,
                        .views = {&view, 1}}));
    const double seconds = seconds_now() - start;
    committed_ += n_rows;
    return seconds;
  }

  // Logits of n rows of the text, `step` rows at a time.
  std::vector<float> all_logits(int32_t n, int32_t step, plan::Phase phase) {
    std::vector<float> all;
    for (int32_t done = 0; done < n; done += step) {
      const int32_t rows = std::min(step, n - done);
      run(rows, phase, true);
      const auto logits = must(program_->read(setup_.decoder.plan.logits, 0, rows));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

private:
  const Setup& setup_;
  std::unique_ptr<backend::Program> program_;
  std::vector<int32_t> pages_;
  int32_t committed_ = 0;
};

void measure_speed(const Setup& setup, int repeats) {
  constexpr int kTokens = 32;
  Session session(setup, ComputeMode::fast, 32);
  std::vector<double> prefill, decode;
  std::vector<std::pair<int32_t, double>> rows = {{2, 1e9}, {4, 1e9}, {8, 1e9}};
  for (int i = 0; i < repeats; ++i) {
    session.restart();
    prefill.push_back(kPrompt / session.run(kPrompt, plan::Phase::prefill));
    double seconds = 0.0;
    for (int t = 0; t < kTokens; ++t)
      seconds += session.run(1, plan::Phase::decode);
    decode.push_back(kTokens / seconds);
    for (auto& [n, best] : rows) {
      for (int k = 0; k < 4; ++k)
        best = std::min(best, session.run(n, plan::Phase::decode, true));
    }
  }
  const auto report = [](const char* name, std::vector<double>& rates) {
    std::sort(rates.begin(), rates.end());
    fmt::print("{} tok/s: median {:.1f}, best {:.1f}\n", name, rates[rates.size() / 2],
               rates.back());
  };
  report("prefill 512", prefill);
  report("decode", decode);
  for (const auto& [n, best] : rows)
    fmt::print("{} rows: {:.2f} ms\n", n, best * 1e3);
}

double log_sum_exp(const float* x, int64_t n) {
  const double top = *std::max_element(x, x + n);
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i)
    sum += std::exp(static_cast<double>(x[i]) - top);
  return top + std::log(sum);
}

// Perplexity, and against `exact` the mean Kullback-Leibler divergence KL(exact || logits) in nats
// and the share of equal best tokens.
void report_accuracy(const Setup& setup, const char* name, const std::vector<float>& exact,
                     const std::vector<float>& logits) {
  const int64_t vocab = setup.vocab();
  const auto n_rows = static_cast<int64_t>(logits.size()) / vocab;
  double nll = 0.0, divergence = 0.0;
  int64_t n_same = 0;
  for (int64_t r = 0; r < n_rows; ++r) {
    const float* p = exact.data() + r * vocab;
    const float* q = logits.data() + r * vocab;
    const double p_sum = log_sum_exp(p, vocab), q_sum = log_sum_exp(q, vocab);
    for (int64_t i = 0; i < vocab; ++i) {
      const double log_p = static_cast<double>(p[i]) - p_sum;
      divergence += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - q_sum));
    }
    if (std::max_element(p, p + vocab) - p == std::max_element(q, q + vocab) - q) ++n_same;
    if (r + 1 < n_rows)
      nll += q_sum - static_cast<double>(q[setup.text[static_cast<size_t>(r + 1)]]);
  }
  const auto n = static_cast<double>(n_rows);
  fmt::print("{}: perplexity {:.5f}, KL {:.3e} nats, same best token {:.1f} %\n", name,
             std::exp(nll / (n - 1)), divergence / n, 100.0 * static_cast<double>(n_same) / n);
}

void measure_accuracy(const Setup& setup) {
  const auto n = std::min(kPrompt, static_cast<int32_t>(setup.text.size()));
  const auto logits = [&](ComputeMode mode, int32_t step, plan::Phase phase) {
    return Session(setup, mode, n).all_logits(n, step, phase);
  };
  const auto exact = logits(ComputeMode::f32, n, plan::Phase::prefill);
  report_accuracy(setup, "f32", exact, exact);
  report_accuracy(setup, "prefill", exact, logits(ComputeMode::fast, n, plan::Phase::prefill));
  report_accuracy(setup, "decode", exact, logits(ComputeMode::fast, 20, plan::Phase::decode));
}

std::vector<int32_t> read_text(const char* path) {
  const auto file = must(weights::read_gguf(std::filesystem::path(path)));
  const weights::Tensor* tokens = file.find("tokens");
  if (tokens == nullptr || tokens->dtype != DType::i32)
    must(Status(Error{ErrorCode::corrupt_file, std::string(path) + " has no I32 'tokens'"}));
  std::vector<int32_t> text(static_cast<size_t>(tokens->n_elements()));
  std::memcpy(text.data(), tokens->data.data(), tokens->data.size());
  return text;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "bench_cpu_model FILE.gguf [--threads N] [--isa NAME] [--text FILE] "
                       "[--repeats N]\n");
    return 2;
  }
  backend::DeviceOptions options;
  std::vector<int32_t> text;
  int repeats = 5;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--threads") options.n_threads = std::atoi(argv[i + 1]);
    if (option == "--isa") options.force_isa = argv[i + 1];
    if (option == "--text") text = read_text(argv[i + 1]);
    if (option == "--repeats") repeats = std::atoi(argv[i + 1]);
  }
  const auto checkpoint = must(weights::read_gguf(std::filesystem::path(argv[1])));
  const auto decoder = must(test::read_decoder(checkpoint));
  const auto device = must(backend::open_device("cpu", options));
  fmt::print("{}\n", device->info().name);
  Setup setup = {*device, decoder, {}};
  for (int64_t i = 0; i < kContext; ++i)
    setup.text.push_back(static_cast<int32_t>((i * 7919 + 104729) % decoder.shape.vocab));
  if (repeats > 0) measure_speed(setup, repeats);
  if (text.empty()) return 0;
  setup.text = text;
  measure_accuracy(setup);
  return 0;
}

}  // namespace
}  // namespace kapitsa::bench

int main(int argc, char** argv) {
  return kapitsa::bench::run(argc, argv);
}
