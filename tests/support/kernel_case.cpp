#include "support/kernel_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kapitsa::test {
namespace {

struct Recorder {
  Trace trace;
  const PlanBuilder& builder;

  explicit Recorder(const PlanBuilder& source) : builder(source) {
    for (const plan::BufferId id : source.outputs()) {
      const plan::Buffer& buffer = source.plan.buffer(id);
      trace.written.push_back({buffer.name, buffer.width, {}});
    }
  }
  // The first `n_first` rows of the last pass are of sequence 0.
  Status record(PlanRunner& runner, int32_t n_first) {
    for (size_t i = 0; i < trace.written.size(); ++i) {
      Trace::Written& written = trace.written[i];
      KAPITSA_ASSIGN(const std::vector<float> rows, runner.read(builder.outputs()[i]));
      const auto middle = rows.begin() + n_first * written.width;
      written.rows[0].insert(written.rows[0].end(), rows.begin(), middle);
      written.rows[1].insert(written.rows[1].end(), middle, rows.end());
    }
    return {};
  }
};

// A single value can be small by cancellation alone: rows narrower than this are compared relative
// to the largest value of all rows.
constexpr size_t kNarrow = 8;

std::string difference(const Trace::Written& expected, const std::vector<float>& want,
                       const std::vector<float>& got, double tolerance) {
  if (want.size() != got.size())
    return fmt::format("{}: {} values, expected {}", expected.buffer, got.size(), want.size());
  const auto width = static_cast<size_t>(expected.width);
  const auto largest_in = [&](size_t begin, size_t end) {
    double largest = 0.0;
    for (size_t i = begin; i < end; ++i) {
      if (std::isfinite(want[i])) largest = std::max(largest, std::abs(double{want[i]}));
    }
    return largest;
  };
  for (size_t row = 0; row * width < want.size(); ++row) {
    const double largest =
        width < kNarrow ? largest_in(0, want.size()) : largest_in(row * width, (row + 1) * width);
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      const bool both_nan = std::isnan(want[i]) && std::isnan(got[i]);
      const double error = std::abs(double{want[i]} - double{got[i]});
      if (both_nan || want[i] == got[i] || error <= tolerance * largest) continue;
      return fmt::format("{} row {} element {}: {} expected {} (error {:.3g}, allowed {:.3g})",
                         expected.buffer, row, i - row * width, got[i], want[i], error,
                         tolerance * largest);
    }
  }
  return {};
}

}  // namespace

Result<Trace> run_script(backend::Device& device, const PlanBuilder& builder,
                         int32_t prefill_tokens, const ScriptOptions& options) {
  RunnerOptions runner_options;
  runner_options.max_tokens = prefill_tokens + 16;
  runner_options.max_rows = std::max(prefill_tokens, 16);
  runner_options.compute = options.compute;
  KAPITSA_ASSIGN(PlanRunner runner, PlanRunner::open(device, builder.plan, runner_options));
  Recorder recorder(builder);

  Random random(7);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < prefill_tokens; ++i)
    prompt.push_back(random.below(kVocab));
  const int32_t grid_end = prefill_tokens / plan::kGrid * plan::kGrid;
  const int32_t cut = options.cut && grid_end < prefill_tokens ? grid_end : 0;
  const std::span<const int32_t> all(prompt);
  for (const auto part :
       {all.first(static_cast<size_t>(cut)), all.subspan(static_cast<size_t>(cut))}) {
    if (part.empty()) continue;
    KAPITSA_TRY(runner.prefill(0, part));
    KAPITSA_TRY(recorder.record(runner, static_cast<int32_t>(part.size())));
  }

  // A tree with two branches that meet the page's own slots and spare ones.
  std::vector<Rows> rows = {{0, {3, 14, 15, 9, 26, 5}, {-1, 0, 0, 1, 2, 4}}};
  if (options.beside) rows.push_back({1, {35, 8}, {}});
  KAPITSA_TRY(runner.decode(rows));
  KAPITSA_TRY(recorder.record(runner, 6));
  KAPITSA_TRY(runner.accept(0, {0, 2, 4}, options.flush));
  if (options.beside) KAPITSA_TRY(runner.accept(1, {0}, options.flush));

  rows = {{0, {32}, {}}};
  if (options.beside) rows.push_back({1, {38}, {}});
  KAPITSA_TRY(runner.decode(rows));
  KAPITSA_TRY(recorder.record(runner, 1));
  return recorder.trace;
}

std::string first_difference(const Trace& expected, const Trace& found, double tolerance) {
  for (size_t b = 0; b < expected.written.size(); ++b) {
    for (size_t s = 0; s < 2; ++s) {
      const std::string line = difference(expected.written[b], expected.written[b].rows[s],
                                          found.written[b].rows[s], tolerance);
      if (!line.empty()) return fmt::format("sequence {}: {}", s, line);
    }
  }
  return {};
}

double tolerance_of(const KernelCase& kernel_case) {
  return kernel_case.unit * (16.0 + 4.0 * std::sqrt(kernel_case.depth));
}

const std::vector<DeviceUnderTest>& devices_under_test() {
  static const std::vector<DeviceUnderTest> devices = [] {
    std::vector<DeviceUnderTest> known = {
        {"Ref", "ref", {}, true, true},
        {"RefChunked", "ref", {0, "chunked"}, true, true, /*recurrences=*/true},
        {"CpuScalar", "cpu", {0, "scalar"}, true, true},
        {"CpuAvx2", "cpu", {0, "avx2"}, false, true},
        {"CpuAvx512", "cpu", {0, "avx512"}, false, true},
        {"CpuNeon", "cpu", {0, "neon"}, false, true},
    };
    for (const backend::BackendEntry& entry : backend::backends()) {
      const std::string name = entry.name;
      if (name != "cpu") known.push_back({name, name, {}, false, name == "cuda"});
    }
    std::erase_if(known, [](const DeviceUnderTest& device) {
      return !device.must_open && !backend::open_device(device.backend, device.options);
    });
    return known;
  }();
  return devices;
}

std::vector<std::string> backends_under_test() {
  std::vector<std::string> names = {"ref"};
  for (const backend::BackendEntry& entry : backend::backends()) {
    if (std::string_view(entry.name) == "cpu" || backend::open_device(entry.name, {}))
      names.push_back(entry.name);
  }
  return names;
}

}  // namespace kapitsa::test
