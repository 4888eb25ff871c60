// Writes the logits of a model for given tokens, to be compared with another engine's by
// tools/quality.py. Prefill in passes of 256, then the rest one by one.
//
//   bench_logits MODEL TOKENS.i32 OUT.f32 [--compute fast|f32] [--kv f16|int8] [--backend NAME]
//       [--decode N]
//
// TOKENS.i32: little-endian int32 ids. OUT.f32: (tokens, vocab) float32. --decode: how many of the
// last tokens are decoded one by one (default 64).
#include "base/file.h"
#include "model/arch.h"
#include "must.h"
#include "support/plan_runner.h"
#include "weights/open.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace kapitsa::bench {
namespace {

constexpr size_t kPassRows = 256;

struct Options {
  std::string model, tokens, out;
  std::string backend = "cpu";
  backend::ComputeMode compute = backend::ComputeMode::fast;
  DType kv = DType::f16;
  size_t n_decode = 64;
};

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> positional;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--") && i + 1 < argc) {
      const std::string value = argv[++i];
      if (word == "--backend") options.backend = value;
      if (word == "--decode") options.n_decode = static_cast<size_t>(std::atoi(value.c_str()));
      if (word == "--kv" && value == "int8") options.kv = DType::q8_0;
      if (word == "--compute" && value == "f32") options.compute = backend::ComputeMode::f32;
    } else {
      positional.emplace_back(word);
    }
  }
  if (positional.size() != 3) {
    fmt::print(stderr, "usage: bench_logits MODEL TOKENS.i32 OUT.f32 [--compute fast|f32] "
                       "[--kv f16|int8] [--backend NAME] [--decode N]\n");
    std::exit(2);
  }
  options.model = positional[0];
  options.tokens = positional[1];
  options.out = positional[2];
  return options;
}

std::vector<int32_t> read_tokens(const std::string& path) {
  const auto file = must(MappedFile::open(path));
  std::vector<int32_t> tokens(file.bytes().size() / sizeof(int32_t));
  std::memcpy(tokens.data(), file.bytes().data(), tokens.size() * sizeof(int32_t));
  return tokens;
}

void run(const Options& options) {
  const auto checkpoint = must(weights::open_checkpoint(options.model));
  const auto model = must(model::load_model(checkpoint, {.kv_dtype = options.kv}));
  const auto device = must(backend::open_device(options.backend, {}));
  const std::vector<int32_t> tokens = read_tokens(options.tokens);
  const auto n = tokens.size();
  auto runner = must(test::PlanRunner::open(
      *device, model.plan,
      {.n_sequences = 1, .max_tokens = static_cast<int32_t>(n + 64), .compute = options.compute}));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(options.out.c_str(), "wb"),
                                                            std::fclose);
  if (!out) must(Status(Error{ErrorCode::io, fmt::format("{}: cannot be written", options.out)}));
  const auto write = [&] {
    const auto rows = must(runner.read(model.plan.logits));
    std::fwrite(rows.data(), sizeof(float), rows.size(), out.get());
  };
  const std::span<const int32_t> all = tokens;
  // Prefill begins on the grid and so ends on it, wherever decoding follows.
  const size_t n_prefill = n > options.n_decode ? (n - options.n_decode) / 64 * 64 : 0;
  for (size_t at = 0; at < n_prefill; at += kPassRows) {
    must(runner.prefill(0, all.subspan(at, std::min(kPassRows, n_prefill - at))));
    write();
  }
  for (size_t i = n_prefill; i < n; ++i) {
    must(runner.decode({{.sequence = 0, .tokens = {tokens[i]}, .parents = {}}}));
    write();
    must(runner.accept(0, {0}));
  }
  fmt::print("{} tokens prefilled, {} decoded\n", n_prefill, n - n_prefill);
}

}  // namespace
}  // namespace kapitsa::bench

int main(int argc, char** argv) {
  kapitsa::bench::run(kapitsa::bench::parse(argc, argv));
  return 0;
}
