// What a model needs in memory: whether it is what was announced, which context is chosen, and what
// is said about a model that does not fit.
#include "base/system.h"
#include "engine/loader.h"
#include "engine/memory.h"
#include "engine/synthetic.h"
#include "kapitsa/synthetic.h"
#include "support/checkpoint_files.h"
#include "support/plan_runner.h"
#include "support/temporary_folder.h"
#include "weights/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace kapitsa::engine {
namespace {

using testing::HasSubstr;

constexpr int64_t kMega = 1'000'000;

// Needs 1000 MB for weights, 10 MB for buffers and 1 MB for each page of 64 tokens.
class FakeDevice final : public backend::Device {
public:
  explicit FakeDevice(int64_t free) {
    info_.backend = "fake";
    info_.memory_free = free;
  }
  const backend::DeviceInfo& info() const override { return info_; }
  bool supports(const plan::Plan&, const plan::Op&) const override { return true; }
  Result<backend::MemoryNeed> memory_need(const plan::Plan&,
                                          const backend::ProgramLimits& limits) override {
    return backend::MemoryNeed{.weights = copied_ ? 1000 * kMega : 0,
                               .weights_mapped = copied_ ? 0 : 1000 * kMega,
                               .kv_cache = limits.n_pages * kMega,
                               .buffers = 10 * kMega};
  }
  Result<std::unique_ptr<backend::Program>> load(const plan::Plan&,
                                                 const backend::ProgramLimits&) override {
    return Error{ErrorCode::unsupported, "fake"};
  }
  Result<std::unique_ptr<backend::DeviceBuffer>> allocate(int64_t) override {
    return Error{ErrorCode::unsupported, "fake"};
  }
  void map_weights() { copied_ = false; }

private:
  backend::DeviceInfo info_;
  bool copied_ = true;
};

model::Model some_model(int32_t trained) {
  model::Model model;
  model.context_trained = trained;
  model.n_layers = 20;
  model.n_parameters = 2000 * kMega;
  return model;
}

int32_t automatic_context(int64_t free, int32_t trained, bool mapped = false) {
  FakeDevice device(free);
  if (mapped) device.map_weights();
  const auto sizing = size_model({.max_sequences = 1}, some_model(trained), device);
  EXPECT_TRUE(sizing) << sizing.error().message;
  return sizing ? sizing->report.context : -1;
}

TEST(AutomaticContext, is_what_the_model_was_trained_for_where_that_fits) {
  EXPECT_EQ(automatic_context(2000 * kMega, 8192), 8192);
  EXPECT_EQ(automatic_context(2000 * kMega, 100), 100);
}

TEST(AutomaticContext, leaves_a_tenth_of_the_free_memory) {
  // 1800 - 1010 MB are 790 pages or 50560 tokens, of which whole thousands count.
  EXPECT_EQ(automatic_context(2000 * kMega, 1 << 18), 50176);
  EXPECT_EQ(automatic_context(1130 * kMega, 1 << 18), 7 * 64) << "few tokens are not rounded";
}

TEST(AutomaticContext, is_short_where_the_weights_do_not_fit) {
  EXPECT_EQ(automatic_context(900 * kMega, 1 << 18, true), 4096);
  EXPECT_EQ(automatic_context(50 * kMega, 1 << 18, true), 35 * 64);
  EXPECT_EQ(automatic_context(1050 * kMega, 1 << 18), 40 * 64) << "just so";
}

TEST(AutomaticContext, is_shared_by_all_sequences) {
  FakeDevice device(2000 * kMega);
  const auto sizing = size_model({.max_sequences = 4}, some_model(1 << 18), device);
  ASSERT_TRUE(sizing);
  EXPECT_EQ(sizing->report.context, 12 * 1024);
  EXPECT_EQ(sizing->limits.n_pages, 4 * 12 * 1024 / 64);
}

std::string refusal(int64_t free, const LoadOptions& options) {
  FakeDevice device(free);
  const model::Model model = some_model(1 << 18);
  const auto sizing = size_model(options, model, device);
  EXPECT_TRUE(sizing) << sizing.error().message;
  const Status status = check_fits(*sizing, options, model, "m.gguf");
  EXPECT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  return status.error().message;
}

TEST(DoesNotFit, says_by_how_much_and_which_context_would) {
  const std::string message = refusal(2000 * kMega, {.context = 1 << 17, .max_sequences = 1});
  EXPECT_THAT(message, HasSubstr("m.gguf: does not fit: needs 2.85 GiB (weights 0.93 GiB, keys and "
                                 "values of 131072 tokens 1.91 GiB"));
  EXPECT_THAT(message, HasSubstr("1.86 GiB are free: 0.99 GiB too much"));
  EXPECT_THAT(message, HasSubstr("a context of 63360 tokens fits"));
}

TEST(DoesNotFit, says_which_quantisation_would) {
  // (550 - 10 - 1) of 1000 MB, of 4 bits.
  EXPECT_THAT(refusal(550 * kMega, {.context = 64, .max_sequences = 1}),
              HasSubstr("about 2.2 bits for each weight does, this one has 4.0"));
}

TEST(DoesNotFit, says_how_many_layers_of_a_synthetic_model_would) {
  EXPECT_THAT(refusal(550 * kMega, {.synthetic = "x", .context = 64, .max_sequences = 1}),
              HasSubstr("about 10 of its 20 layers fit"));
}

TEST(DoesNotFit, is_said_by_load_before_anything_is_allocated) {
  const auto memory = memory_info();
  if (!memory || memory->available_bytes > int64_t{250} << 30) GTEST_SKIP() << "it would fit here";
  const auto loaded = load({.model = test::golden_path("llama_f32.gguf"),
                            .context = 1 << 24,
                            .max_sequences = 32,
                            .threads = 1,
                            .kv_type = KvType::f32});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("llama_f32.gguf: does not fit"));
  EXPECT_THAT(loaded.error().message, HasSubstr("a context of 256 tokens fits"));
}

// A field of /proc/self/status in bytes.
int64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

// From now on VmHWM is the peak since now.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// Sanitizers keep shadows of memory, which count as well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowed = true;
#elif defined(__has_feature)
constexpr bool kShadowed = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kShadowed = false;
#endif

struct Measured {
  double told = 0.0;
  double peak = 0.0;
};

// Every part is used in full: all rows of a pass, all outputs, all slots, rows all over the
// embedding table.
void run_in_full(const std::filesystem::path& path, Measured& measured) {
  const auto file = weights::open_checkpoint(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto model = model::load_model(*file, {});
  ASSERT_TRUE(model) << model.error().message;
  const auto device = backend::open_device("cpu", {.n_threads = 2});
  ASSERT_TRUE(device) << device.error().message;

  if (!reset_peak()) GTEST_SKIP() << "this system does not tell a peak since now";
  const int64_t before = status_bytes("VmRSS");
  constexpr int32_t kRows = 256;
  constexpr int32_t kTokens = 1024;
  auto runner = test::PlanRunner::open(
      **device, model->plan,
      {.n_sequences = 1,
       .max_tokens = kTokens,
       .max_rows = kRows,
       .compute = backend::ComputeMode::fast,
       .copied = [&](std::span<const std::byte> part) { file->release(part); }});
  ASSERT_TRUE(runner) << runner.error().message;
  std::vector<int32_t> tokens(kTokens);
  for (int32_t i = 0; i < kTokens; ++i)
    tokens[static_cast<size_t>(i)] = static_cast<int32_t>(int64_t{i} * 48 % model->plan.n_vocab);
  for (int32_t i = 0; i < kTokens; i += kRows)
    ASSERT_TRUE(runner->prefill(0, std::span(tokens).subspan(static_cast<size_t>(i), kRows)));
  measured = {static_cast<double>(runner->program().memory().resident()),
              static_cast<double>(status_bytes("VmHWM") - before)};
}

// A system that is short of memory takes pages of the file back at any time, so that a peak can be
// too small; what a program needs is the largest of a few.
TEST(Memory, the_report_is_within_3_percent_of_the_peak) {
  if (kShadowed) GTEST_SKIP() << "not with a sanitizer";
  const test::TemporaryFolder folder;
  const auto path = folder / "m.gguf";
  ASSERT_TRUE(write_synthetic({.model = "smollm2", .n_layers = 20, .path = path, .progress = {}}));
  Measured measured;
  for (int attempt = 0; attempt < 4; ++attempt) {
    run_in_full(path, measured);
    if (HasFatalFailure() || IsSkipped()) return;
    if (std::abs(measured.told - measured.peak) <= 0.03 * measured.peak) break;
  }
  EXPECT_NEAR(measured.told, measured.peak, 0.03 * measured.peak);
}

TEST(Memory, load_takes_what_was_announced) {
  for (const char* name : {"llama_kquant.gguf", "qwen3_5_bf16.gguf", "qwen3_5_moe_bf16.gguf",
                           "nemotron_h_moe_bf16.gguf", "laguna_bf16.gguf"}) {
    for (const char* backend : {"cpu", "ref"}) {
      const LoadOptions options{
          .model = test::golden_path(name), .backend = backend, .max_sequences = 2, .threads = 1};
      const auto report = inspect(options);
      const auto loaded = load(options);
      ASSERT_TRUE(report && report->memory && loaded) << name;
      const backend::MemoryNeed& taken = loaded->program->memory();
      EXPECT_EQ(report->memory->context, loaded->info.context) << name;
      EXPECT_EQ(report->memory->allocated(), taken.total()) << name;
      EXPECT_EQ(report->memory->total(), taken.resident()) << name;
      EXPECT_EQ(report->memory->states, taken.recurrent) << name;
    }
  }
}

}  // namespace
}  // namespace kapitsa::engine
