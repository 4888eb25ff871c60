// kapitsa synth NAME OUT.gguf: a model file of a real shape with random weights.
#include "base/interrupt.h"
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "kapitsa/synthetic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <memory>

namespace kapitsa::cli {
namespace {

struct SynthCommand {
  std::string model;
  std::string path;
  int32_t layers = 0;
  bool force = false;
  bool quiet = false;
};

int synth_command(const SynthCommand& command) {
  std::error_code ignored;
  if (!command.force && std::filesystem::is_regular_file(command.path, ignored)) {
    return report(
        {ErrorCode::invalid_argument, command.path + ": exists already; --force writes over it"});
  }
  const InterruptGuard guard(InterruptGuard::Kind::cleanup);
  ProgressBar bar(command.model, ProgressBar::style_for_stderr(command.quiet));
  const auto bytes = write_synthetic(
      {.model = command.model,
       .n_layers = command.layers,
       .path = command.path,
       .progress = [&](int64_t done, int64_t total) {
         bar.update({.done_bytes = done, .total_bytes = total, .fresh_bytes = done});
         return !guard.interrupted();
       }});
  bar.clear();
  if (!bytes && bytes.error().code == ErrorCode::cancelled) {
    std::fprintf(stderr, "Stopped. Nothing was kept.\n");
    return kExitInterrupted;
  }
  if (!bytes) return report(bytes.error());
  std::printf("%s\n", command.path.c_str());
  return 0;
}

}  // namespace

void add_synth(const Command& app, int& exit_code) {
  auto options = std::make_shared<SynthCommand>();
  const Command command =
      app.subcommand("synth", "Write a model file of a real shape with random weights");
  command
      .option("SHAPE", options->model,
              fmt::format("One of {}", fmt::join(synthetic_models(), ", ")))
      .required();
  command.option("FILE", options->path, "The GGUF file to write").required();
  command.option("--layers", options->layers, "Only the first layers; default: all")
      .range(int64_t{1}, int64_t{1000});
  command.flag("-f,--force", options->force, "Write over a file that exists");
  command.flag("-q,--quiet", options->quiet, "No progress, only the path");
  command.footer(
      "For measuring this or another engine without a download: speed does not depend on "
      "the\nvalues of weights. What such a model answers is noise.\n"
      "Examples:\n"
      "  kapitsa synth qwen3-1.7b qwen3.gguf\n"
      "  kapitsa synth 27b 27b-part.gguf --layers 8\n"
      "'kapitsa bench --synthetic 35b' measures without a file.");
  command.on_run([options, &exit_code] { exit_code = synth_command(*options); });
}

}  // namespace kapitsa::cli
