// kapitsa bench [MODEL]: speed of reading prompts and of making tokens, at several depths, beside
// the bandwidth of the memory, which bounds it.
#include "base/bandwidth.h"
#include "base/file.h"
#include "base/system.h"
#include "cli/bench_report.h"
#include "cli/cli.h"
#include "cli/event_queue.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/show.h"
#include "hub/sha256.h"
#include "kapitsa/inspect.h"
#include "kapitsa/synthetic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>

namespace kapitsa::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  std::string model;
  std::string synthetic;
  int32_t layers = 0;
  MachineOptions machine;
  std::vector<int32_t> depths = {1024, 4096, 8192, 16384, 32768};
  int32_t n_decode = 64;
  int32_t repetitions = 5;
  double seconds = 300.0;
  std::string json_path;
  bool trace = false;
  float confidence = 0.0F;
  bool has_confidence = false;
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// smollm2 where it is there, else the first model that Kapitsa downloaded, else any.
Result<std::filesystem::path> default_model() {
  KAPITSA_ASSIGN(const hub::LocalFolders folders, model_folders());
  auto smollm2 = hub::resolve_model("smollm2", folders);
  if (smollm2) return smollm2;
  const std::vector<hub::LocalModel> models = hub::find_local_models(folders);
  if (!models.empty()) return models.front().path;
  return smollm2;  // its error says how to get it
}

// "" for a folder, and for a file so large that the hash would take longer than a run.
std::string sha256_of(const std::filesystem::path& path) {
  constexpr uintmax_t kLargest = uintmax_t{2} << 30;  // bytes
  std::error_code error;
  if (std::filesystem::file_size(path, error) > kLargest || error) return {};
  hub::Sha256 hash;
  return hub::hash_file(path, hash) ? hash.hex() : std::string();
}

// A line about what goes on, where someone watches; each replaces the one before.
void progress(const std::string& text) {
  if (is_terminal(2)) std::fprintf(stderr, "\r%-78s\r", text.c_str());
}

// Made-up text: which tokens they are is no matter to the time they take.
std::vector<int32_t> made_up_tokens(int32_t n, int32_t n_vocab) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  uint32_t random = 1;
  for (int32_t& token : tokens) {
    random = random * 1664525U + 1013904223U;  // Numerical Recipes, section 7.1
    token = static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(n_vocab));
  }
  return tokens;
}

// Reads a prompt and decodes so many tokens that the sequence ends at `depth` tokens: one more than
// n_decode, whose first comes with the prompt, or n_decode where the model writes blocks.
Result<BenchRun> run_once(Engine& engine, const BenchOptions& options, int32_t depth,
                          int32_t n_decode) {
  Request request;
  request.max_tokens = n_decode + (engine.model().block > 0 ? 0 : 1);
  request.prompt = TokenPrompt{made_up_tokens(depth - request.max_tokens, engine.model().n_vocab)};
  if (options.has_confidence) request.sampling.confidence = options.confidence;
  request.ignore_eos = true;
  request.sampling.temperature = 0.0F;
  EventQueue queue;
  KAPITSA_TRY(engine.submit(std::move(request), [&](const Event& event) {
    if (!std::holds_alternative<TextDelta>(event)) queue.push(event);
  }));
  while (true) {
    const auto event = queue.pop(std::chrono::hours(1));
    if (!event) continue;
    if (const auto* failed = std::get_if<Failed>(&*event)) return failed->error;
    if (const auto* done = std::get_if<Finished>(&*event)) {
      return BenchRun{done->prompt_tokens, done->decode_tokens, done->prefill_seconds,
                      done->decode_seconds, done->steps};
    }
  }
}

// The depths, with the reason for those that cannot be measured.
std::vector<BenchCell> plan_cells(const BenchOptions& options, const FileReport& file) {
  std::vector<BenchCell> cells;
  std::vector<int32_t> depths = options.depths;
  std::ranges::sort(depths);
  for (const int32_t depth : depths) {
    BenchCell cell;
    cell.depth = depth;
    if (depth > file.context_trained) {
      cell.skipped = fmt::format("the model was trained for {} tokens", file.context_trained);
    } else if (file.memory && depth > file.memory->largest_context) {
      cell.skipped =
          fmt::format("does not fit in memory (up to {} tokens do)", file.memory->largest_context);
    } else if (depth < options.n_decode + 2) {
      cell.skipped = fmt::format("too short to decode {} tokens", options.n_decode);
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

// Takes turns over the depths, so that a slow minute of the machine does not fall on one of them.
// A run that would go beyond the time is left out; the first of a depth is taken to need as long as
// the depth before, in proportion.
Status measure(Engine& engine, const BenchOptions& options, BenchReport& report) {
  const auto start = Clock::now();
  std::vector<double> last_seconds(report.cells.size());
  for (int32_t repetition = 0; repetition < options.repetitions; ++repetition) {
    for (size_t c = 0; c < report.cells.size(); ++c) {
      BenchCell& cell = report.cells[c];
      if (!cell.skipped.empty()) continue;
      const double expected = repetition > 0 || c == 0
                                  ? last_seconds[c]
                                  : last_seconds[c - 1] * cell.depth / report.cells[c - 1].depth;
      if (since(start) + expected > options.seconds) {
        if (cell.runs.empty())
          cell.skipped = fmt::format("no time left of the {:.0f} s (--time)", options.seconds);
        continue;
      }
      progress(fmt::format("context {}, run {} of {}", show_context(cell.depth), repetition + 1,
                           options.repetitions));
      const auto run_start = Clock::now();
      KAPITSA_ASSIGN(const BenchRun run, run_once(engine, options, cell.depth, options.n_decode));
      last_seconds[c] = since(run_start);
      cell.runs.push_back(run);
    }
    const auto bandwidth = measure_bandwidth(report.n_threads, 0.2);
    if (bandwidth)
      report.bytes_per_second = std::max(report.bytes_per_second, bandwidth->bytes_per_second);
  }
  return {};
}

Result<LoadOptions> chosen_model(const BenchOptions& options) {
  if (options.synthetic.empty()) {
    KAPITSA_ASSIGN(const std::filesystem::path path,
                   options.model.empty() ? default_model() : find_model(options.model));
    return load_options(options.machine, path);
  }
  LoadOptions load = load_options(options.machine, {});
  load.synthetic = options.synthetic;
  load.synthetic_layers = options.layers;
  return load;
}

Result<BenchReport> bench(const BenchOptions& options) {
  BenchReport report;
  if (!options.json_path.empty() && options.json_path != "-")
    KAPITSA_TRY(check_can_write(options.json_path));
  KAPITSA_ASSIGN(LoadOptions load, chosen_model(options));
  load.trace = options.trace;
  load.max_sequences = 1;  // it runs one after another: memory for more would be taken from weights
  progress("reading the model");
  KAPITSA_ASSIGN(const FileReport file, inspect(load));
  if (!file.not_runnable.empty()) return Error{ErrorCode::unsupported, file.not_runnable};
  report.cells = plan_cells(options, file);
  load.context = 0;
  for (const BenchCell& cell : report.cells) {
    if (cell.skipped.empty()) load.context = std::max(load.context, cell.depth);
  }
  if (load.context == 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("no depth can be measured: {}: {}", report.cells.front().depth,
                             report.cells.front().skipped)};
  }
  report.machine = machine_info();
  report.n_threads = load.threads > 0 ? load.threads : report.machine.usable_cores;
  report.model_path = file.path;
  if (!options.json_path.empty() && load.synthetic.empty())
    report.model_sha256 = sha256_of(load.model);
  report.flags = flags_text(options.machine);
  if (options.trace) report.flags += report.flags.empty() ? "--trace" : " --trace";
  if (options.has_confidence) {
    report.flags +=
        fmt::format("{}--confidence {}", report.flags.empty() ? "" : " ", options.confidence);
  }
  if (!load.synthetic.empty()) {
    report.flags +=
        fmt::format("{}--synthetic {}", report.flags.empty() ? "" : " ", load.synthetic);
    if (options.layers > 0) report.flags += fmt::format(" --layers {}", options.layers);
  }
  KAPITSA_ASSIGN(const auto engine, Engine::load(load));
  report.model = engine->model();
  // How many tokens share the reading of a pass over a block differs from pass to pass.
  for (BenchCell& cell : report.cells)
    cell.bytes_per_token =
        report.model.block > 0 ? 0 : engine->decode_bytes(cell.depth - options.n_decode / 2);

  progress("warming up");
  KAPITSA_ASSIGN(const Bandwidth bandwidth, measure_bandwidth(report.n_threads, 0.5));
  report.bytes_per_second = bandwidth.bytes_per_second;
  KAPITSA_TRY(run_once(*engine, options, std::min(load.context, 2 * options.n_decode + 2),
                       std::min(options.n_decode, load.context - 2)));
  KAPITSA_TRY(measure(*engine, options, report));
  return report;
}

int bench_command(const BenchOptions& options) {
  const auto result = bench(options);
  progress("");
  if (!result) return report(result.error());
  if (options.json_path == "-") {
    fmt::print("{}\n", bench_json(*result));
    return 0;
  }
  fmt::print("{}{}", bench_table(*result), steps_table(*result));
  if (options.json_path.empty()) return 0;
  const Status written = write_file_atomic(options.json_path, bench_json(*result) + "\n");
  return written ? 0 : report(written.error());
}

}  // namespace

void add_bench(const Command& app, int& exit_code) {
  auto options = std::make_shared<BenchOptions>();
  const Command command = app.subcommand("bench", "Measure the speed of a model on this machine");
  const Option model =
      command.option("MODEL", options->model,
                     "Name as in 'kapitsa list', or path of a model file or folder; default: "
                     "smollm2, or the first model that is there");
  Option synthetic = command.option("--synthetic", options->synthetic,
                                    "Random weights in the shape of " +
                                        fmt::format("{}", fmt::join(synthetic_models(), ", ")));
  synthetic.excludes(model);
  command.option("--layers", options->layers, "Only the first layers of a synthetic model")
      .range(int64_t{1}, int64_t{1000})
      .needs(synthetic);
  command
      .option("-d,--depths", options->depths,
              "Tokens of context to measure at; default: 1024,4096,8192,16384,32768")
      .separated_by(',')
      .range(int64_t{16}, int64_t{1 << 24});
  command.option("-n,--decode", options->n_decode, "Tokens to decode in a run")
      .show_default()
      .range(int64_t{1}, int64_t{4096});
  command.option("-r,--runs", options->repetitions, "Runs of each depth, after a warm-up")
      .show_default()
      .range(int64_t{1}, int64_t{1000});
  command.option("--time", options->seconds, "Seconds that all runs together may take")
      .show_default()
      .range(0.0, 1e6);
  const Option confidence =
      command.option("--confidence", options->confidence,
                     "Block diffusion: probability above which a token settles; random weights "
                     "settle one token a pass, at 0 a block a pass");
  command.option("--json", options->json_path,
                 "Write everything measured to this file; -: to the terminal, no table");
  command.flag("--trace", options->trace,
               "Also show where the time goes, step by step; runs are slower by a little");
  add_machine_options_without_context(command, options->machine);
  command.footer("decode is the median of the runs; bound is what the memory's bandwidth allows; "
                 "share is how\n"
                 "much of the bandwidth decoding uses.\n"
                 "Examples:\n"
                 "  kapitsa bench\n"
                 "  kapitsa bench smollm2 -d 1024,4096 -r 10 --json bench.json\n"
                 "  kapitsa bench model.gguf --threads 4\n"
                 "  kapitsa bench --synthetic 35b --layers 4");
  command.on_run([options, confidence, &exit_code] {
    options->has_confidence = confidence.given();
    exit_code = bench_command(*options);
  });
}

}  // namespace kapitsa::cli
