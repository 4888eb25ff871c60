// Models without a file: every shape loads with its own architecture's code, a written file holds
// the same model, and what is asked wrongly is refused.
#include "kapitsa/engine.h"
#include "kapitsa/inspect.h"
#include "kapitsa/synthetic.h"
#include "support/checkpoint_files.h"
#include "support/temporary_folder.h"
#include "support/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::test {
namespace {

Request request() {
  Request request;
  request.prompt = TokenPrompt{{1, 2, 3, 4, 5}};
  request.max_tokens = 4;
  request.sampling.temperature = 0.0F;
  request.ignore_eos = true;
  return request;
}

std::vector<int32_t> tokens_of(const LoadOptions& options) {
  const auto engine = Engine::load(options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? answer(**engine, request()).tokens : std::vector<int32_t>{};
}

TEST(Synthetic, every_shape_is_one_that_its_architecture_accepts) {
  for (const std::string_view name : synthetic_models()) {
    const auto report = inspect({.synthetic = std::string(name), .backend = "ref", .context = 64});
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->not_runnable, "") << name;
  }
}

TEST(Synthetic, table_that_is_read_by_row_takes_no_memory) {
  const auto report =
      inspect({.synthetic = "flash-next", .synthetic_layers = 2, .backend = "cpu", .context = 64});
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_TRUE(report->memory.has_value()) << report->not_runnable;
  EXPECT_EQ(report->memory->tables_in_file, int64_t{320001446} * 160 / 32 * 18);
  EXPECT_LT(report->memory->total(), int64_t{8} << 30);
}

TEST(Synthetic, a_written_file_is_the_same_model) {
  const TemporaryFolder folder;
  const auto path = folder / "part.gguf";
  const auto bytes =
      write_synthetic({.model = "smollm2", .n_layers = 2, .path = path, .progress = {}});
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  LoadOptions options{.backend = "cpu", .context = 64, .threads = 1};
  options.model = path;
  const std::vector<int32_t> of_file = tokens_of(options);
  options.model.clear();
  options.synthetic = "smollm2";
  options.synthetic_layers = 2;
  EXPECT_EQ(of_file.size(), 4U);
  EXPECT_EQ(tokens_of(options), of_file);
}

TEST(Synthetic, an_int8_cache_answers_and_is_refused_where_heads_do_not_fit) {
  LoadOptions options{.backend = "cpu", .context = 64, .threads = 1, .kv_type = KvType::int8};
  options.synthetic = "smollm2";
  options.synthetic_layers = 2;
  EXPECT_EQ(tokens_of(options).size(), 4U);
  options.synthetic.clear();
  options.synthetic_layers = 0;
  options.model = golden_path("nemotron_h_moe_bf16.gguf");  // heads of 16
  const auto refused = Engine::load(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("take f16"));
}

TEST(Synthetic, names_what_there_is_when_asked_for_another) {
  const auto none = Engine::load({.synthetic = "nothing"});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, testing::HasSubstr("smollm2"));
  const auto layers = Engine::load({.synthetic = "smollm2", .synthetic_layers = 99});
  ASSERT_FALSE(layers.ok());
  EXPECT_THAT(layers.error().message, testing::HasSubstr("1 to 30"));
  const auto few = Engine::load({.synthetic = "flash-next", .synthetic_layers = 1});
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, testing::HasSubstr("2 to 48"));
}

}  // namespace
}  // namespace kapitsa::test
