// Tiny random llama checkpoints against transformers in double precision (tests/golden/README.md):
// the whole prompt, the prompt cut on the grid, and token by token, on every backend.
#include "model/arch.h"
#include "support/checkpoint_files.h"
#include "support/plan_runner.h"

#include <gtest/gtest.h>

namespace kapitsa::test {
namespace {

// Above what float32 loses (4e-6), below the smallest mistake that was tried (8e-5).
constexpr double kTolerance = 2e-5;

class LlamaGolden : public testing::TestWithParam<std::tuple<const char*, const char*>> {
protected:
  void SetUp() override {
    const std::string variant = std::get<0>(GetParam());
    model_file_.emplace(read_test_checkpoint(golden_path("llama_" + variant + ".gguf")));
    const auto golden = read_test_checkpoint(golden_path("llama_" + variant + ".golden.gguf"));
    tokens_ = integers(golden, "tokens");
    expected_ = floats(golden, "logits");
    auto model = model::load_model(*model_file_, {.kv_dtype = DType::f32});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    ASSERT_TRUE(plan::validate(model_->plan).ok());
    auto device = backend::open_device(std::get<1>(GetParam()), {.n_threads = 2});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto runner = PlanRunner::open(*device_, model_->plan);
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_.emplace(std::move(*runner));
  }

  void append_logits(std::vector<float>& found) {
    const auto rows = runner_->read(model_->plan.logits);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    found.insert(found.end(), rows->begin(), rows->end());
  }

  std::optional<weights::Checkpoint> model_file_;
  std::vector<int32_t> tokens_;
  std::vector<float> expected_;
  std::optional<model::Model> model_;
  std::unique_ptr<backend::Device> device_;
  std::optional<PlanRunner> runner_;
};

TEST_P(LlamaGolden, whole_prompt) {
  ASSERT_TRUE(runner_->prefill(0, tokens_).ok());
  std::vector<float> found;
  append_logits(found);
  EXPECT_LT(relative_error(found, expected_), kTolerance);
}

TEST_P(LlamaGolden, prompt_cut_on_the_grid) {
  const std::span<const int32_t> tokens = tokens_;
  std::vector<float> found;
  ASSERT_TRUE(runner_->prefill(0, tokens.first(64)).ok());
  append_logits(found);
  ASSERT_TRUE(runner_->prefill(0, tokens.subspan(64)).ok());
  append_logits(found);
  EXPECT_LT(relative_error(found, expected_), kTolerance);
}

TEST_P(LlamaGolden, token_by_token) {
  std::vector<float> found;
  for (const int32_t token : tokens_) {
    ASSERT_TRUE(runner_->decode({{.sequence = 0, .tokens = {token}, .parents = {}}}).ok());
    append_logits(found);
    ASSERT_TRUE(runner_->accept(0, {0}).ok());
  }
  EXPECT_LT(relative_error(found, expected_), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Variants, LlamaGolden,
                         testing::Combine(testing::Values("f32", "wide_head", "untied_bias",
                                                          "rope_llama3", "rope_linear", "kquant"),
                                          testing::Values("ref", "cpu")),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + "_on_" +
                                  std::get<1>(param.param);
                         });

}  // namespace
}  // namespace kapitsa::test
