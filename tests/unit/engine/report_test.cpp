// inspect(), verify() and diagnose() on a tiny model and on damaged copies of it.
#include "base/file.h"
#include "engine/traffic.h"
#include "kapitsa/diagnose.h"
#include "kapitsa/inspect.h"
#include "kapitsa/verify.h"
#include "support/checkpoint_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace kapitsa {
namespace {

const LoadOptions kTiny = {.model = test::golden_path("llama_f32.gguf"), .threads = 1};

// A copy of the tiny model, changed; removed at the end of the test.
class DamagedCopy {
public:
  template <typename Change>
  explicit DamagedCopy(Change change) {
    auto bytes = read_text_file(kTiny.model);
    EXPECT_TRUE(bytes.ok());
    change(*bytes);
    path_ = std::filesystem::path(testing::TempDir()) /
            (std::string("kapitsa_") +
             testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf");
    EXPECT_TRUE(write_file_atomic(path_, *bytes).ok());
  }
  ~DamagedCopy() { std::filesystem::remove(path_); }
  DamagedCopy(const DamagedCopy&) = delete;
  DamagedCopy& operator=(const DamagedCopy&) = delete;
  LoadOptions options() const { return {.model = path_, .threads = 1}; }

private:
  std::filesystem::path path_;
};

TEST(Inspect, counts_tensors_types_and_memory) {
  LoadOptions options = kTiny;
  options.context = 128;
  options.max_sequences = 1;
  const auto report = inspect(options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->architecture, "llama");
  EXPECT_EQ(report->not_runnable, "");
  EXPECT_EQ(report->tensors.size(), 20U);
  int64_t bytes = 0;
  for (const TypeShare& type : report->types)
    bytes += type.bytes;
  EXPECT_EQ(bytes, report->weight_bytes);
  ASSERT_TRUE(report->memory.has_value());
  // 2 layers, keys and values, 128 tokens of 32 f16.
  EXPECT_GE(report->memory->kv_cache, 2 * 2 * 128 * 32 * 2);
  EXPECT_TRUE(report->memory->fits());
  EXPECT_EQ(report->memory->largest_context, report->context_trained);
}

TEST(Inspect, an_unknown_architecture_still_has_tensors) {
  const DamagedCopy copy([](std::string& bytes) {
    const size_t key = bytes.find("general.architecture");
    bytes[bytes.find("llama", key)] = 'L';
  });
  const auto report = inspect(copy.options());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->architecture, "Llama");
  EXPECT_NE(report->not_runnable.find("'Llama' is not supported"), std::string::npos);
  EXPECT_EQ(report->tensors.size(), 20U);
  EXPECT_FALSE(report->memory.has_value());
}

TEST(Inspect, a_missing_file_is_an_error) {
  EXPECT_EQ(inspect({.model = "/no/such/file.gguf"}).error().code, ErrorCode::not_found);
}

TEST(Verify, a_sound_model_passes_every_check) {
  const auto checks = verify({.load = kTiny});
  ASSERT_TRUE(checks.ok()) << checks.error().message;
  ASSERT_EQ(checks->size(), 3U);
  for (const Check& check : *checks)
    EXPECT_TRUE(check.passed) << check.name << ": " << check.detail;
}

TEST(Verify, another_perplexity_than_the_known_one_does_not_pass) {
  const auto checks = verify({.load = kTiny, .known_perplexity = 5.0});
  ASSERT_TRUE(checks.ok());
  EXPECT_FALSE(checks->back().passed) << checks->back().detail;
  const auto again = verify({.load = kTiny, .known_perplexity = checks->back().value});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->back().passed) << again->back().detail;
}

TEST(Verify, a_weight_that_is_not_a_number_is_found) {
  const auto damaged = [](size_t from_end) {
    return DamagedCopy([from_end](std::string& bytes) {
      const uint32_t nan = 0x7FC00000;
      std::memcpy(bytes.data() + bytes.size() - from_end, &nan, sizeof nan);
    });
  };
  const DamagedCopy norm = damaged(64);  // the last tensor; loading looks at vectors already
  const auto refused = verify({.load = norm.options()});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("expected a finite number"), std::string::npos);
  const DamagedCopy matrix = damaged(40000);
  const auto checks = verify({.load = matrix.options()});
  ASSERT_TRUE(checks.ok()) << checks.error().message;
  EXPECT_FALSE(checks->front().passed);
  EXPECT_NE(checks->front().detail.find("is not finite or above"), std::string::npos)
      << checks->front().detail;
}

TEST(Diagnose, every_kernel_of_this_machine_agrees_with_the_reference) {
  const Diagnosis diagnosis = diagnose(1);
  EXPECT_TRUE(diagnosis.problems.empty()) << diagnosis.problems.front();
  ASSERT_FALSE(diagnosis.variants.empty());
  EXPECT_EQ(std::ranges::count_if(diagnosis.variants, &Variant::chosen), 1);
  for (const KernelCheck& check : diagnosis.checks) {
    if (!check.present) continue;
    EXPECT_TRUE(check.passed()) << check.op << " " << check.variant.isa << " " << check.error << " "
                                << check.problem;
  }
}

TEST(Traffic, an_embedding_counts_a_row_and_a_tied_one_the_whole_table) {
  const std::vector<std::byte> table(64 * 32 * 4);
  const std::vector<std::byte> head(64 * 32 * 4);
  const auto plan_of = [&](bool tied) {
    plan::Plan plan;
    const auto x = plan.add_buffer({.name = "x", .width = 32});
    const auto logits = plan.add_buffer(
        {.name = "logits", .width = 64, .rows = plan::RowSpace::output, .readable = true});
    const auto cache = plan.add_state({.name = "k", .dtype = DType::f16, .width = 8});
    const auto values = plan.add_state({.name = "v", .dtype = DType::f16, .width = 8});
    const auto embedding = plan.add_weight({.name = "e", .out = 64, .in = 32, .data = table});
    const auto output =
        tied ? embedding : plan.add_weight({.name = "o", .out = 64, .in = 32, .data = head});
    plan.begin_routine("decode");
    plan.add(plan::Embed{.table = embedding, .out = x}, "embed");
    plan.add(plan::Attention{.attend = {.k_cache = cache, .v_cache = values, .window = 100}}, "a");
    plan.add(plan::Head{.x = x, .weight = output, .logits = logits}, "head");
    return plan;
  };
  constexpr int64_t kRow = 32 * 4, kTable = 64 * kRow, kToken = 2 * 8 * 2;
  EXPECT_EQ(engine::decode_bytes(plan_of(false), 9), kRow + kTable + 10 * kToken);
  EXPECT_EQ(engine::decode_bytes(plan_of(true), 9), kRow + kTable + 10 * kToken);
  EXPECT_EQ(engine::decode_bytes(plan_of(true), 1000), kRow + kTable + 100 * kToken);
}

}  // namespace
}  // namespace kapitsa
