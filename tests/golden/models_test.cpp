// Tiny random checkpoints against transformers in double precision (tests/golden/README.md): the
// whole prompt, the prompt cut on the grid, and token by token, on every backend in f32. A new
// checkpoint is one line in kCases.
#include "model/arch.h"
#include "support/checkpoint_files.h"
#include "support/kernel_case.h"
#include "support/plan_runner.h"

#include <gtest/gtest.h>

namespace kapitsa::test {
namespace {

// Above what float32 loses (4e-6), below the smallest mistake that was tried (8e-5).
constexpr double kTolerance = 2e-5;

struct GoldenCase {
  const char* checkpoint;  // a file or folder of tests/golden/data
  const char* golden;
};
constexpr GoldenCase kCases[] = {
    {"llama_f32.gguf", "llama_f32.golden.gguf"},
    {"llama_wide_head.gguf", "llama_wide_head.golden.gguf"},
    {"llama_untied_bias.gguf", "llama_untied_bias.golden.gguf"},
    {"llama_rope_llama3.gguf", "llama_rope_llama3.golden.gguf"},
    {"llama_rope_linear.gguf", "llama_rope_linear.golden.gguf"},
    {"llama_kquant.gguf", "llama_kquant.golden.gguf"},
    {"llama_hf", "llama_hf.golden.gguf"},
    {"llama_hf_llama3", "llama_hf_llama3.golden.gguf"},
    {"llama_mlx", "llama_mlx.golden.gguf"},
    {"laguna_bf16.gguf", "laguna_hf.golden.gguf"},
    {"laguna_hf", "laguna_hf.golden.gguf"},
    {"laguna_mlx", "laguna_mlx.golden.gguf"},
    {"muse_glimmer_bf16.gguf", "muse_glimmer_hf.golden.gguf"},
    {"muse_glimmer_hf", "muse_glimmer_hf.golden.gguf"},
    {"muse_glimmer_mlx", "muse_glimmer_mlx.golden.gguf"},
    {"nemotron_h_bf16.gguf", "nemotron_h_hf.golden.gguf"},
    {"nemotron_h_hf", "nemotron_h_hf.golden.gguf"},
    {"nemotron_h_mlx", "nemotron_h_mlx.golden.gguf"},
    {"nemotron_h_nvfp4", "nemotron_h_nvfp4.golden.gguf"},
    {"nemotron_h_moe_bf16.gguf", "nemotron_h_moe_hf.golden.gguf"},
    {"nemotron_h_moe_hf", "nemotron_h_moe_hf.golden.gguf"},
    {"qwen3_bf16.gguf", "qwen3_hf.golden.gguf"},
    {"qwen3_hf", "qwen3_hf.golden.gguf"},
    {"qwen3_mlx_mixed", "qwen3_mlx_mixed.golden.gguf"},
    {"qwen3_mlx_mxfp4", "qwen3_mlx_mxfp4.golden.gguf"},
    {"qwen3_moe_bf16.gguf", "qwen3_moe_hf.golden.gguf"},
    {"qwen3_moe_hf", "qwen3_moe_hf.golden.gguf"},
    {"qwen3_moe_mlx", "qwen3_moe_mlx.golden.gguf"},
    {"qwen3_5_bf16.gguf", "qwen3_5_hf.golden.gguf"},
    {"qwen3_5_hf", "qwen3_5_hf.golden.gguf"},
    {"qwen3_5_mlx", "qwen3_5_mlx.golden.gguf"},
    {"qwen3_5_moe_bf16.gguf", "qwen3_5_moe_hf.golden.gguf"},
    {"qwen3_5_moe_hf", "qwen3_5_moe_hf.golden.gguf"},
    {"qwen3_5_moe_mlx", "qwen3_5_moe_mlx.golden.gguf"},
    {"qwen3_next_bf16.gguf", "qwen3_next_hf.golden.gguf"},
    {"qwen3_next_hf", "qwen3_next_hf.golden.gguf"},
    {"qwen4_exp_bf16.gguf", "qwen4_exp_hf.golden.gguf"},
    {"qwen4_exp_hf", "qwen4_exp_hf.golden.gguf"},
};

class ModelGolden : public testing::TestWithParam<std::tuple<GoldenCase, std::string>> {
protected:
  void SetUp() override {
    const auto& [golden_case, backend_name] = GetParam();
    model_file_.emplace(read_test_checkpoint(golden_path(golden_case.checkpoint)));
    const auto golden = read_test_checkpoint(golden_path(golden_case.golden));
    tokens_ = integers(golden, "tokens");
    kept_rows_ = integers(golden, "logits.rows");
    expected_ = floats(golden, "logits");
    auto model = model::load_model(*model_file_, {.kv_dtype = DType::f32});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    ASSERT_TRUE(plan::validate(model_->plan).ok());
    auto device = backend::open_device(backend_name, {.n_threads = 2});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    const auto n_tokens = static_cast<int32_t>(tokens_.size());
    auto runner =
        PlanRunner::open(*device_, model_->plan, {.max_tokens = n_tokens, .max_rows = n_tokens});
    // A backend may lack a weight format, but not the reference.
    if (!runner && runner.error().code == ErrorCode::unsupported && backend_name != "ref") {
      GTEST_SKIP() << runner.error().message;
    }
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_.emplace(std::move(*runner));
  }

  void append_logits(std::vector<float>& found) {
    const auto rows = runner_->read(model_->plan.logits);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    found.insert(found.end(), rows->begin(), rows->end());
  }

  // The rows of `all` that the golden file has.
  std::vector<float> kept(const std::vector<float>& all) const {
    const size_t width = all.size() / tokens_.size();
    std::vector<float> result;
    for (const int32_t row : kept_rows_) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(width) * row;
      result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
    return result;
  }

  std::optional<weights::Checkpoint> model_file_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> kept_rows_;
  std::vector<float> expected_;
  std::optional<model::Model> model_;
  std::unique_ptr<backend::Device> device_;
  std::optional<PlanRunner> runner_;
};

TEST_P(ModelGolden, whole_prompt) {
  ASSERT_TRUE(runner_->prefill(0, tokens_).ok());
  std::vector<float> found;
  append_logits(found);
  EXPECT_LT(relative_error(kept(found), expected_), kTolerance);
}

TEST_P(ModelGolden, prompt_cut_on_the_grid) {
  const std::span<const int32_t> tokens = tokens_;
  std::vector<float> found;
  ASSERT_TRUE(runner_->prefill(0, tokens.first(64)).ok());
  append_logits(found);
  ASSERT_TRUE(runner_->prefill(0, tokens.subspan(64)).ok());
  append_logits(found);
  EXPECT_LT(relative_error(kept(found), expected_), kTolerance);
}

TEST_P(ModelGolden, token_by_token) {
  std::vector<float> found;
  for (const int32_t token : tokens_) {
    ASSERT_TRUE(runner_->decode({{.sequence = 0, .tokens = {token}, .parents = {}}}).ok());
    append_logits(found);
    ASSERT_TRUE(runner_->accept(0, {0}).ok());
  }
  EXPECT_LT(relative_error(kept(found), expected_), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ModelGolden,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::ValuesIn(backends_under_test())),
                         [](const auto& param) {
                           const std::filesystem::path path = std::get<0>(param.param).checkpoint;
                           const std::string format = path.has_extension() ? "_gguf" : "";
                           return path.stem().string() + format + "_on_" + std::get<1>(param.param);
                         });

// A multi-token-prediction head right after the trunk: row r of its pass has the token after that
// of row r of the trunk's pass. It has a cache of its own, here that of another sequence.
struct HeadCase {
  const char* checkpoint;
  const char* golden;
  const char* logits = "mtp.logits";  // of the last rows that have a next token
};
constexpr HeadCase kHeads[] = {
    {"nemotron_h_moe_bf16.gguf", "nemotron_h_moe_hf.golden.gguf"},
    {"nemotron_h_moe_hf", "nemotron_h_moe_hf.golden.gguf"},
    {"qwen3_5_bf16.gguf", "qwen3_5_hf.golden.gguf"},
    {"qwen3_5_hf", "qwen3_5_hf.golden.gguf"},
    {"qwen3_5_moe_bf16.gguf", "qwen3_5_moe_hf.golden.gguf"},
    {"qwen3_5_moe_hf", "qwen3_5_moe_hf.golden.gguf"},
    {"qwen4_exp_bf16.gguf", "qwen4_exp_hf.golden.gguf", "mtp.dense_logits"},
    {"qwen4_exp_hf", "qwen4_exp_hf.golden.gguf"},
};

class HeadGolden : public testing::TestWithParam<std::tuple<HeadCase, const char*>> {
protected:
  void SetUp() override {
    const auto& [head_case, backend_name] = GetParam();
    file_.emplace(read_test_checkpoint(golden_path(head_case.checkpoint)));
    const auto golden = read_test_checkpoint(golden_path(head_case.golden));
    tokens_ = integers(golden, "tokens");
    expected_ = floats(golden, head_case.logits);
    auto model = model::load_model(*file_, {.kv_dtype = DType::f32, .mtp = true});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    const Status valid = plan::validate(model_->plan);
    ASSERT_TRUE(valid.ok()) << valid.error().message;
    ASSERT_EQ(model_->plan.routines().size(), 2U);
    auto device = backend::open_device(backend_name, {.n_threads = 2});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    const auto n_tokens = static_cast<int32_t>(tokens_.size());
    auto runner =
        PlanRunner::open(*device_, model_->plan, {.max_tokens = n_tokens, .max_rows = n_tokens});
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_.emplace(std::move(*runner));
  }

  void expect_last_rows(std::span<const float> found) {
    ASSERT_GE(found.size(), expected_.size());
    EXPECT_LT(relative_error(found.last(expected_.size()), expected_), kTolerance);
  }

  std::optional<weights::Checkpoint> file_;
  std::vector<int32_t> tokens_;
  std::vector<float> expected_;
  std::optional<model::Model> model_;
  std::unique_ptr<backend::Device> device_;
  std::optional<PlanRunner> runner_;
};

TEST_P(HeadGolden, head_after_the_trunk) {
  const std::span<const int32_t> tokens = tokens_;
  ASSERT_TRUE(runner_->prefill(0, tokens.first(tokens.size() - 1)).ok());
  runner_->set_routine(1);
  ASSERT_TRUE(runner_->prefill(1, tokens.subspan(1)).ok());
  const auto logits = runner_->read(model_->plan.logits);
  ASSERT_TRUE(logits.ok()) << logits.error().message;
  expect_last_rows(*logits);
}

TEST_P(HeadGolden, head_after_each_token) {
  std::vector<float> found;
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    for (const int32_t routine : {0, 1}) {
      runner_->set_routine(routine);
      const int32_t token = tokens_[i + static_cast<size_t>(routine)];
      ASSERT_TRUE(runner_->decode({{.sequence = routine, .tokens = {token}, .parents = {}}}).ok());
      if (routine == 1) {
        const auto row = runner_->read(model_->plan.logits);
        ASSERT_TRUE(row.ok()) << row.error().message;
        found.insert(found.end(), row->begin(), row->end());
      }
      ASSERT_TRUE(runner_->accept(routine, {0}).ok());
    }
  }
  expect_last_rows(found);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, HeadGolden,
                         testing::Combine(testing::ValuesIn(kHeads), testing::Values("ref", "cpu")),
                         [](const auto& param) {
                           const std::filesystem::path path = std::get<0>(param.param).checkpoint;
                           const std::string format = path.has_extension() ? "_gguf" : "";
                           return path.stem().string() + format + "_on_" + std::get<1>(param.param);
                         });

}  // namespace
}  // namespace kapitsa::test
