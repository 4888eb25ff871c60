// Tiny random block-diffusion checkpoints against transformers or an independent script in double
// precision: their logits under the block mask, and token for token the answers of a plain Python
// loop, with and without reuse of the keys and values of settled blocks (tools/golden). A new
// checkpoint is one line in kCases.
#include "engine/denoise.h"
#include "kapitsa/engine.h"
#include "model/arch.h"
#include "support/checkpoint_files.h"
#include "support/model_folder.h"
#include "support/plan_runner.h"
#include "support/wait.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>

namespace kapitsa::test {
namespace {

// As in models_test.cpp.
constexpr double kTolerance = 2e-5;

struct GoldenCase {
  const char* checkpoint;  // a file or folder of tests/golden/data
  const char* golden;
};
constexpr GoldenCase kCases[] = {
    {"llada2_moe_hf", "llada2_moe_hf.golden.gguf"},
    {"sdar_moe_bf16.gguf", "sdar_moe_hf.golden.gguf"},
    {"sdar_moe_hf", "sdar_moe_hf.golden.gguf"},
};

// An answer of the Python loop.
struct Expected {
  engine::DenoiseParams params;
  std::optional<double> edit_threshold, entropy_bound;
  bool shift = false;
  std::vector<int32_t> prompt, tokens, passes;
};

std::vector<Expected> read_answers(const weights::Checkpoint& golden) {
  std::vector<Expected> answers;
  for (int64_t i = 0; i < *golden.integer("golden.diffusion.count"); ++i) {
    const std::string at = "diffusion." + std::to_string(i) + ".";
    Expected answer;
    answer.prompt = integers(golden, at + "prompt");
    answer.tokens = integers(golden, at + "tokens");
    answer.passes = integers(golden, at + "passes");
    if (golden.has("golden." + at + "threshold"))
      answer.params.threshold = static_cast<float>(*golden.number("golden." + at + "threshold"));
    if (golden.has("golden." + at + "entropy_bound"))
      answer.entropy_bound = *golden.number("golden." + at + "entropy_bound");
    answer.params.sampling.temperature =
        static_cast<float>(*golden.number("golden." + at + "temperature"));
    const std::string seed = *golden.string("golden." + at + "seed");
    std::from_chars(seed.data(), seed.data() + seed.size(), answer.params.sampling.seed);
    answer.shift = *golden.integer_or("golden." + at + "shift", 0) != 0;
    if (golden.has("golden." + at + "edit_threshold"))
      answer.edit_threshold = *golden.number("golden." + at + "edit_threshold");
    answers.push_back(std::move(answer));
  }
  return answers;
}

// Through the engine, together and alone. `keys`: members of `diffusion` to put into config.json.
void expect_answers(const char* checkpoint, const char* backend,
                    const std::vector<Expected>& expected, const std::string& keys = "") {
  const TestModel model(checkpoint);
  if (!keys.empty()) {
    const std::filesystem::path config = model.path() / "config.json";
    const std::string text = read_file(config);
    std::ofstream(config) << "{\"diffusion\": {" << keys << "}," << text.substr(1);
  }
  auto engine = Engine::load({.model = model.path(),
                              .backend = backend,
                              .threads = 2,
                              .compute = Compute::f32,
                              .kv_type = KvType::f32});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  std::vector<Request> requests;
  for (const Expected& e : expected) {
    Request request;
    request.prompt = TokenPrompt{e.prompt};
    request.sampling.temperature = e.params.sampling.temperature;
    request.sampling.seed = e.params.sampling.seed;
    request.sampling.confidence = e.params.threshold;
    request.max_tokens = static_cast<int32_t>(e.tokens.size());
    request.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  const std::vector<Answered> together = answer_all(**engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].tokens, expected[i].tokens) << "request " << i << together[i].error;
    EXPECT_EQ(answer(**engine, requests[i]).tokens, expected[i].tokens) << i << ", alone";
  }
}

class DiffusionGolden : public testing::TestWithParam<std::tuple<GoldenCase, const char*>> {
protected:
  static constexpr int32_t kMaxTokens = 512;

  void SetUp() override {
    const auto& [golden_case, backend_name] = GetParam();
    model_file_.emplace(read_test_checkpoint(golden_path(golden_case.checkpoint)));
    golden_.emplace(read_test_checkpoint(golden_path(golden_case.golden)));
    tokens_ = integers(*golden_, "tokens");
    auto model = model::load_model(*model_file_, {.kv_dtype = DType::f32});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    ASSERT_TRUE(model_->diffusion.has_value());
    const Status valid = plan::validate(model_->plan);
    ASSERT_TRUE(valid.ok()) << valid.error().message;
    auto device = backend::open_device(backend_name, {.n_threads = 2});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto runner = PlanRunner::open(*device_, model_->plan,
                                   {.max_tokens = kMaxTokens, .max_rows = kMaxTokens});
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_.emplace(std::move(*runner));
  }

  void append_logits(std::vector<float>& found) {
    const auto rows = runner_->read(model_->plan.logits);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    found.insert(found.end(), rows->begin(), rows->end());
  }

  // Of the rows that the golden file has.
  void expect_logits(const std::vector<float>& found) {
    const auto n_vocab = static_cast<size_t>(model_->plan.n_vocab);
    std::vector<float> kept;
    for (const int32_t row : integers(*golden_, "rows")) {
      const auto* from = found.data() + static_cast<size_t>(row) * n_vocab;
      kept.insert(kept.end(), from, from + n_vocab);
    }
    EXPECT_LT(relative_error(kept, floats(*golden_, "logits")), kTolerance);
  }

  std::optional<weights::Checkpoint> model_file_, golden_;
  std::vector<int32_t> tokens_;
  std::optional<model::Model> model_;
  std::unique_ptr<backend::Device> device_;
  std::optional<PlanRunner> runner_;
};

TEST_P(DiffusionGolden, whole_prompt) {
  ASSERT_TRUE(runner_->prefill(0, tokens_).ok());
  std::vector<float> found;
  append_logits(found);
  expect_logits(found);
}

TEST_P(DiffusionGolden, prompt_cut_on_the_grid) {
  const std::span<const int32_t> tokens = tokens_;
  std::vector<float> found;
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 64}, {64, 256}, {256, 320}}) {
    ASSERT_TRUE(runner_->prefill(0, tokens.subspan(from, to - from)).ok());
    append_logits(found);
  }
  expect_logits(found);
}

TEST_P(DiffusionGolden, block_by_block) {
  const auto block = static_cast<size_t>(model_->diffusion->block);
  std::vector<int32_t> path(block);
  std::iota(path.begin(), path.end(), 0);
  std::vector<float> found;
  for (size_t first = 0; first < tokens_.size(); first += block) {
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<int32_t> own(begin, begin + static_cast<std::ptrdiff_t>(block));
    ASSERT_TRUE(runner_->decode({{0, own, {}}}).ok());
    append_logits(found);
    ASSERT_TRUE(runner_->accept(0, path).ok());
  }
  expect_logits(found);
}

// Every pass computes the whole sequence anew.
TEST_P(DiffusionGolden, answers_without_reuse_of_settled_blocks) {
  const auto n_vocab = static_cast<size_t>(model_->plan.n_vocab);
  for (const Expected& expected : read_answers(*golden_)) {
    model::Diffusion diffusion = *model_->diffusion;
    auto& rule = std::get<model::MaskedDiffusion>(diffusion.rule);
    rule.edit_threshold = expected.edit_threshold;
    rule.shift_logits = expected.shift;
    engine::Denoiser denoiser(diffusion, model_->plan.n_vocab);
    std::vector<int32_t> tokens = expected.prompt;
    std::vector<int32_t> passes, places;
    engine::Block block;
    while (tokens.size() < expected.prompt.size() + expected.tokens.size()) {
      denoiser.open(expected.params, tokens, block);
      tokens.resize(static_cast<size_t>(block.first));
      while (!block.is_done()) {
        std::vector<int32_t> all = tokens;
        all.insert(all.end(), block.tokens.begin(), block.tokens.end());
        ASSERT_TRUE(runner_->decode({{0, all, {}}}).ok());
        const auto logits = runner_->read(model_->plan.logits);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        denoiser.wanted(block, places);
        std::vector<float> wanted;
        for (const int32_t place : places) {
          const int32_t row = block.first + place - (expected.shift ? 1 : 0);
          const auto* from = logits->data() + static_cast<size_t>(row) * n_vocab;
          wanted.insert(wanted.end(), from, from + n_vocab);
        }
        ASSERT_TRUE(denoiser.step(expected.params, wanted, block).ok());
      }
      passes.push_back(block.step);
      tokens.insert(tokens.end(), block.tokens.begin(), block.tokens.end());
    }
    tokens.resize(expected.prompt.size() + expected.tokens.size());
    tokens.erase(tokens.begin(), tokens.begin() + std::ssize(expected.prompt));
    EXPECT_EQ(tokens, expected.tokens) << "threshold " << *expected.params.threshold;
    EXPECT_EQ(passes, expected.passes) << "threshold " << *expected.params.threshold;
  }
}

// The engine keeps them.
TEST_P(DiffusionGolden, answers_with_reuse_of_settled_blocks) {
  const char* checkpoint = std::get<0>(GetParam()).checkpoint;
  std::vector<Expected> plain;
  for (const Expected& expected : read_answers(*golden_)) {
    if (!expected.edit_threshold && !expected.shift) {
      plain.push_back(expected);
    } else if (std::filesystem::is_directory(golden_path(checkpoint))) {
      const std::string keys =
          expected.shift ? "\"shift_logits\": true"
                         : "\"edit_threshold\": " + std::to_string(*expected.edit_threshold);
      expect_answers(checkpoint, std::get<1>(GetParam()), {expected}, keys);
    }
  }
  expect_answers(checkpoint, std::get<1>(GetParam()), plain);
}
INSTANTIATE_TEST_SUITE_P(Checkpoints, DiffusionGolden,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values("ref", "cpu")),
                         [](const auto& param) {
                           const std::filesystem::path path = std::get<0>(param.param).checkpoint;
                           const std::string format = path.has_extension() ? "_gguf" : "";
                           return path.stem().string() + format + "_on_" + std::get<1>(param.param);
                         });

// --- Canvas models ------------------------------------------------------------------------------

class CanvasGolden : public testing::TestWithParam<std::tuple<GoldenCase, const char*>> {
protected:
  void SetUp() override {
    const auto& [golden_case, backend_name] = GetParam();
    model_file_.emplace(read_test_checkpoint(golden_path(golden_case.checkpoint)));
    golden_.emplace(read_test_checkpoint(golden_path(golden_case.golden)));
    auto model = model::load_model(*model_file_, {.kv_dtype = DType::f32});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    ASSERT_TRUE(model_->diffusion.has_value());
    const Status valid = plan::validate(model_->plan);
    ASSERT_TRUE(valid.ok()) << valid.error().message;
    auto device = backend::open_device(backend_name, {.n_threads = 2});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
  }

  model::CanvasDiffusion& rule() {
    return std::get<model::CanvasDiffusion>(model_->diffusion->rule);
  }

  std::optional<PlanRunner> open_runner() {
    auto runner = PlanRunner::open(*device_, model_->plan, {.max_tokens = 512, .max_rows = 512});
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    return runner.ok() ? std::optional(std::move(*runner)) : std::nullopt;
  }

  // Fills the cache from its committed end, which is on the grid.
  void encode(PlanRunner& runner, std::span<const int32_t> tokens) {
    runner.set_routine(model_->diffusion->store_routine);
    ASSERT_TRUE(runner.prefill(0, tokens).ok());
    runner.set_routine(model_->diffusion->denoise_routine);
  }

  std::vector<float> logits(PlanRunner& runner, const std::vector<int32_t>& canvas,
                            std::span<const float> conditions) {
    EXPECT_TRUE(runner.program().write(rule().conditions, 0, conditions).ok());
    EXPECT_TRUE(runner.decode({{0, canvas, {}}}).ok());
    auto rows = runner.read(model_->plan.logits);
    EXPECT_TRUE(rows.ok());
    return rows.ok() ? std::move(*rows) : std::vector<float>();
  }

  std::optional<weights::Checkpoint> model_file_, golden_;
  std::optional<model::Model> model_;
  std::unique_ptr<backend::Device> device_;
};

std::vector<float> softmax_rows(std::vector<float> logits, size_t width) {
  for (size_t row = 0; row < logits.size(); row += width) {
    double sum = 0.0;
    for (size_t i = row; i < row + width; ++i)
      sum += std::exp(static_cast<double>(logits[i]));
    for (size_t i = row; i < row + width; ++i)
      logits[i] = static_cast<float>(std::exp(static_cast<double>(logits[i])) / sum);
  }
  return logits;
}

// The first step, a step with conditions, and the first step after a canvas was committed.
TEST_P(CanvasGolden, logits_of_three_canvases) {
  const std::vector<int32_t> prompt = integers(*golden_, "tokens");
  const std::vector<int32_t> all = integers(*golden_, "canvases");
  const auto length = static_cast<size_t>(model_->diffusion->block);
  const auto canvas = [&](size_t i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * length);
    return std::vector<int32_t>(begin, begin + static_cast<std::ptrdiff_t>(length));
  };
  const auto width = static_cast<size_t>(model_->plan.n_vocab);
  const std::vector<float> none(length * width, 0.0F);
  auto runner = open_runner();
  ASSERT_TRUE(runner.has_value());
  encode(*runner, std::span(prompt).first(64));
  encode(*runner, std::span(prompt).subspan(64));

  const std::vector<float> first = floats(*golden_, "canvas.0.logits");
  EXPECT_LT(relative_error(logits(*runner, canvas(0), none), first), kTolerance);
  EXPECT_LT(relative_error(logits(*runner, canvas(1), softmax_rows(first, width)),
                           floats(*golden_, "canvas.1.logits")),
            kTolerance);
  runner->set_routine(model_->diffusion->store_routine);
  ASSERT_TRUE(runner->decode({{0, canvas(1), {}}}).ok());
  std::vector<int32_t> path(length);
  std::iota(path.begin(), path.end(), 0);
  ASSERT_TRUE(runner->accept(0, path).ok());
  runner->set_routine(model_->diffusion->denoise_routine);
  EXPECT_LT(relative_error(logits(*runner, canvas(2), none), floats(*golden_, "canvas.2.logits")),
            kTolerance);
}

// Every canvas encodes the whole text anew.
TEST_P(CanvasGolden, answers_without_reuse_of_settled_canvases) {
  for (const Expected& expected : read_answers(*golden_)) {
    rule().entropy_bound = *expected.entropy_bound;
    engine::Denoiser denoiser(*model_->diffusion, model_->plan.n_vocab);
    std::vector<int32_t> tokens = expected.prompt;
    std::vector<int32_t> passes;
    engine::Block block;
    while (tokens.size() < expected.prompt.size() + expected.tokens.size()) {
      auto runner = open_runner();
      ASSERT_TRUE(runner.has_value());
      encode(*runner, tokens);
      denoiser.open(expected.params, tokens, block);
      while (!block.is_done()) {
        const std::vector<float> found = logits(*runner, block.tokens, block.conditions);
        ASSERT_TRUE(denoiser.step(expected.params, found, block).ok());
      }
      passes.push_back(block.step);
      tokens.insert(tokens.end(), block.tokens.begin(), block.tokens.end());
    }
    tokens.resize(expected.prompt.size() + expected.tokens.size());
    tokens.erase(tokens.begin(), tokens.begin() + std::ssize(expected.prompt));
    EXPECT_EQ(tokens, expected.tokens) << "bound " << *expected.entropy_bound;
    EXPECT_EQ(passes, expected.passes) << "bound " << *expected.entropy_bound;
  }
}

TEST_P(CanvasGolden, answers_with_reuse_of_settled_canvases) {
  std::vector<Expected> expected = read_answers(*golden_);
  const double own = rule().entropy_bound;  // a request cannot change it
  std::erase_if(expected, [&](const Expected& e) { return *e.entropy_bound != own; });
  ASSERT_FALSE(expected.empty());
  expect_answers(std::get<0>(GetParam()).checkpoint, std::get<1>(GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CanvasGolden,
                         testing::Combine(testing::Values(GoldenCase{
                                              "diffusion_gemma_hf",
                                              "diffusion_gemma_hf.golden.gguf"}),
                                          testing::Values("ref", "cpu")),
                         [](const auto& param) {
                           return std::string("diffusion_gemma_on_") + std::get<1>(param.param);
                         });

}  // namespace
}  // namespace kapitsa::test
