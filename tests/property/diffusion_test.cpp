// Block-diffusion models from outside and pass by pass: invariants 1, 2 and 4 of
// docs/architecture.md bit for bit, and what a request can count on. A new architecture is one line
// in kModels.
#include "kapitsa/engine.h"
#include "model/arch.h"
#include "support/bits.h"
#include "support/checkpoint_files.h"
#include "support/model_folder.h"
#include "support/plan_runner.h"
#include "support/wait.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace kapitsa::test {
namespace {

struct ModelCase {
  const char* name;
  const char* file;  // of tests/golden/data
};
constexpr ModelCase kModels[] = {
    {"diffusion_gemma", "diffusion_gemma_hf"},
    {"llada2_moe", "llada2_moe_hf"},
    {"sdar_moe", "sdar_moe_bf16.gguf"},
};

struct DeviceCase {
  const char* name;
  const char* backend;
  const char* isa;  // "": the best
  backend::ComputeMode compute;
};
constexpr DeviceCase kDevices[] = {
    {"ref", "ref", "", backend::ComputeMode::f32},
    {"cpu_f32", "cpu", "", backend::ComputeMode::f32},
    {"cpu_fast", "cpu", "", backend::ComputeMode::fast},
    {"cpu_scalar", "cpu", "scalar", backend::ComputeMode::fast},
};

class BlockInvariant : public testing::TestWithParam<std::tuple<ModelCase, DeviceCase>> {
protected:
  static constexpr int32_t kSequences = 4;

  void SetUp() override {
    file_.emplace(read_test_checkpoint(golden_path(std::get<0>(GetParam()).file)));
    auto model = model::load_model(*file_, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    ASSERT_TRUE(model_->diffusion.has_value());
    random_.seed(7);
  }

  int32_t block() const { return model_->diffusion->block; }

  void with_runner(int32_t n_threads, const std::function<void(PlanRunner&)>& work) {
    const DeviceCase& device_case = std::get<1>(GetParam());
    auto device = backend::open_device(device_case.backend,
                                       {.n_threads = n_threads, .force_isa = device_case.isa});
    ASSERT_TRUE(device.ok()) << device.error().message;
    auto runner = PlanRunner::open(**device, model_->plan,
                                   {.n_sequences = kSequences,
                                    .max_tokens = 512,
                                    .max_rows = 512,
                                    .compute = device_case.compute});
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    work(*runner);
  }

  std::vector<int32_t> random_tokens(int32_t n) {
    std::uniform_int_distribution<int32_t> token(0, model_->plan.n_vocab - 1);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens)
      t = token(random_);
    return tokens;
  }

  // Logits of n rows of the last pass from `first` on.
  Bits bits(PlanRunner& runner, int32_t first, int32_t n) {
    Bits result;
    for (int32_t row = first; row < first + n; ++row) {
      const auto logits = runner.logits(row);
      EXPECT_TRUE(logits.ok());
      if (!logits) return {};
      const Bits one = test::bits(*logits);
      result.insert(result.end(), one.begin(), one.end());
    }
    return result;
  }

  void fill_cache(PlanRunner& runner, int32_t sequence, const std::vector<int32_t>& tokens) {
    runner.set_routine(model_->diffusion->store_routine);
    ASSERT_TRUE(runner.prefill(sequence, tokens).ok());
    runner.set_routine(model_->diffusion->denoise_routine);
  }

  std::optional<weights::Checkpoint> file_;
  std::optional<model::Model> model_;
  std::mt19937 random_;
};

TEST_P(BlockInvariant, a_block_alone_equals_the_block_among_four) {
  std::vector<Rows> blocks;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t s = 0; s < kSequences; ++s) {
    prompts.push_back(random_tokens(block() * (1 + 5 * s)));
    blocks.push_back({s, random_tokens(block()), {}});
  }
  const auto read_prompts = [&](PlanRunner& runner) {
    for (int32_t s = 0; s < kSequences; ++s)
      fill_cache(runner, s, prompts[static_cast<size_t>(s)]);
  };
  std::vector<Bits> alone;
  with_runner(1, [&](PlanRunner& runner) {
    read_prompts(runner);
    for (const Rows& rows : blocks) {
      ASSERT_TRUE(runner.decode(std::span(&rows, 1)).ok());
      alone.push_back(bits(runner, 0, block()));
    }
  });
  with_runner(1, [&](PlanRunner& runner) {
    read_prompts(runner);
    ASSERT_TRUE(runner.decode(blocks).ok());
    for (int32_t s = 0; s < kSequences; ++s) {
      EXPECT_EQ(bits(runner, s * block(), block()), alone[static_cast<size_t>(s)])
          << "sequence " << s;
    }
  });
}

TEST_P(BlockInvariant, steps_that_are_not_committed_leave_nothing) {
  const std::vector<int32_t> prompt = random_tokens(block() * 7);
  const Rows last = {0, random_tokens(block()), {}};
  Bits clean;
  with_runner(1, [&](PlanRunner& runner) {
    fill_cache(runner, 0, prompt);
    ASSERT_TRUE(runner.decode({last}).ok());
    clean = bits(runner, 0, block());
  });
  with_runner(1, [&](PlanRunner& runner) {
    fill_cache(runner, 0, prompt);
    for (int step = 0; step < 3; ++step)
      ASSERT_TRUE(runner.decode({{0, random_tokens(block()), {}}}).ok());
    ASSERT_TRUE(runner.decode({last}).ok());
    EXPECT_EQ(bits(runner, 0, block()), clean);
  });
}

TEST_P(BlockInvariant, a_block_commits_beside_the_next_one_as_in_a_pass_of_its_own) {
  if (model_->diffusion->store_routine != model_->diffusion->denoise_routine)
    GTEST_SKIP() << "blocks are committed by a routine of its own";
  const std::vector<int32_t> prompt = random_tokens(block() * 5);
  const std::vector<int32_t> settled = random_tokens(block());
  const std::vector<int32_t> next = random_tokens(block());
  std::vector<int32_t> path(static_cast<size_t>(block()));
  std::iota(path.begin(), path.end(), 0);
  Bits apart;
  with_runner(1, [&](PlanRunner& runner) {
    fill_cache(runner, 0, prompt);
    ASSERT_TRUE(runner.decode({{0, settled, {}}}).ok());
    ASSERT_TRUE(runner.accept(0, path).ok());
    ASSERT_TRUE(runner.decode({{0, next, {}}}).ok());
    apart = bits(runner, 0, block());
  });
  with_runner(1, [&](PlanRunner& runner) {
    fill_cache(runner, 0, prompt);
    std::vector<int32_t> both = settled;
    both.insert(both.end(), next.begin(), next.end());
    ASSERT_TRUE(runner.decode({{0, both, {}}}).ok());
    EXPECT_EQ(bits(runner, block(), block()), apart);
    ASSERT_TRUE(runner.accept(0, path).ok());
    ASSERT_TRUE(runner.decode({{0, next, {}}}).ok());
    EXPECT_EQ(bits(runner, 0, block()), apart) << "after the commit";
  });
}

TEST_P(BlockInvariant, prefill_cut_at_random_grid_points_equals_whole) {
  const std::vector<int32_t> prompt = random_tokens(250);
  const Rows next = {0, random_tokens(block()), {}};
  Bits whole;
  with_runner(1, [&](PlanRunner& runner) {
    fill_cache(runner, 0, prompt);
    ASSERT_TRUE(runner.decode({next}).ok());
    whole = bits(runner, 0, block());
  });
  for (int trial = 0; trial < 4; ++trial) {
    with_runner(1, [&](PlanRunner& runner) {
      size_t from = 0;
      while (from < prompt.size()) {
        const size_t to = std::min(prompt.size(), from + 64 * (1 + random_() % 3));
        const auto begin = prompt.begin() + static_cast<std::ptrdiff_t>(from);
        fill_cache(runner, 0, {begin, begin + static_cast<std::ptrdiff_t>(to - from)});
        from = to;
      }
      ASSERT_TRUE(runner.decode({next}).ok());
      EXPECT_EQ(bits(runner, 0, block()), whole);
    });
  }
}

TEST_P(BlockInvariant, threads_do_not_change_bits) {
  const std::vector<int32_t> prompt = random_tokens(block() * 9);
  const Rows next = {0, random_tokens(block()), {}};
  std::vector<Bits> found;
  for (const int32_t n_threads : {1, 2, 3}) {
    with_runner(n_threads, [&](PlanRunner& runner) {
      fill_cache(runner, 0, prompt);
      ASSERT_TRUE(runner.decode({next}).ok());
      found.push_back(bits(runner, 0, block()));
    });
  }
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
}

// Invariant 2, through the whole engine: an answer is a function of the request alone.
TEST_P(BlockInvariant, answers_do_not_depend_on_neighbours_or_repetition) {
  const auto& [model_case, device_case] = GetParam();
  std::vector<Request> requests;
  for (int32_t i = 0; i < kSequences; ++i) {
    Request request;
    request.prompt = TokenPrompt{random_tokens(2 + 47 * i)};
    request.sampling = {.temperature = i == 0 ? 0.0F : 0.5F + 0.25F * static_cast<float>(i),
                        .top_k = i % 2 == 0 ? 0 : 40,
                        .top_p = i % 3 == 0 ? 1.0F : 0.9F,
                        .seed = static_cast<uint64_t>(i)};
    request.max_tokens = 14;
    request.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  const TestModel model(model_case.file);
  const auto load = [&](int32_t max_sequences) {
    auto engine =
        Engine::load({.model = model.path(),
                      .backend = device_case.backend,
                      .max_sequences = max_sequences,
                      .threads = 2,
                      .isa = device_case.isa,
                      .compute = device_case.compute == backend::ComputeMode::f32 ? Compute::f32
                                                                                  : Compute::fast});
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  };
  const auto alone = load(1);
  const auto together = load(kSequences);
  ASSERT_NE(alone, nullptr);
  ASSERT_NE(together, nullptr);
  const std::vector<Answered> answers = answer_all(*together, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answered single = answer(*alone, requests[i]);
    ASSERT_TRUE(single.finished) << single.error;
    EXPECT_EQ(single.tokens.size(), 14U);
    EXPECT_EQ(answers[i].tokens, single.tokens) << "request " << i;
    EXPECT_EQ(answer(*together, requests[i]).tokens, single.tokens) << "request " << i << ", again";
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockInvariant,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kDevices)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) + "_on_" +
                                  std::get<1>(param.param).name;
                         });

// --- What a request can count on -----------------------------------------------------------------

class BlockEngine : public testing::TestWithParam<ModelCase> {
protected:
  std::unique_ptr<Engine> load(LoadOptions options = {}) {
    model_.emplace(GetParam().file);
    options.model = model_->path();
    options.backend = "cpu";
    options.threads = 1;
    auto engine = Engine::load(options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static Request request_of(int32_t n_prompt, int32_t max_tokens, uint64_t seed = 1) {
    Request request;
    std::vector<int32_t> tokens(static_cast<size_t>(n_prompt));
    std::iota(tokens.begin(), tokens.end(), 4);
    for (int32_t& token : tokens)
      token %= 200;
    request.prompt = TokenPrompt{tokens};
    request.max_tokens = max_tokens;
    request.sampling.seed = seed;
    request.ignore_eos = true;
    return request;
  }

  std::optional<TestModel> model_;
};

TEST_P(BlockEngine, a_limit_cuts_the_text_and_changes_nothing_else) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  const Answered longest = answer(*engine, request_of(37, 21));
  ASSERT_TRUE(longest.finished) << longest.error;
  ASSERT_EQ(longest.tokens.size(), 21U);
  EXPECT_EQ(longest.finished->reason, FinishReason::length);
  EXPECT_EQ(longest.finished->prompt_tokens, 37);
  for (const int32_t n : {1, 2, 5, 8, 13}) {
    const Answered shorter = answer(*engine, request_of(37, n));
    EXPECT_EQ(shorter.tokens,
              std::vector<int32_t>(longest.tokens.begin(), longest.tokens.begin() + n));
  }
}

TEST_P(BlockEngine, an_end_token_inside_a_block_ends_the_answer_there) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  constexpr int32_t kEnd = 2;  // of the tiny tokenizer
  int32_t n_inside = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Request request = request_of(21, 40, seed);
    request.sampling.logit_bias = {{kEnd, 8.0F}};
    const Answered whole = answer(*engine, request);
    request.ignore_eos = false;
    const Answered cut = answer(*engine, request);
    ASSERT_TRUE(cut.finished) << cut.error;
    const auto end = std::ranges::find(whole.tokens, kEnd);
    if (end == whole.tokens.end()) continue;
    EXPECT_EQ(cut.finished->reason, FinishReason::stop_token);
    EXPECT_EQ(cut.tokens, std::vector<int32_t>(whole.tokens.begin(), end));
    n_inside += cut.finished->completion_tokens % engine->model().block != 0 ? 1 : 0;
  }
  EXPECT_GT(n_inside, 0) << "no end token was drawn: the test shows nothing";
}

TEST_P(BlockEngine, stop_texts_end_the_answer_before_them) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  Request request = request_of(10, 40);
  const Answered whole = answer(*engine, request);
  ASSERT_TRUE(whole.finished);
  ASSERT_GE(whole.text.size(), 12U);
  const std::string stop = whole.text.substr(8, 3);
  request.stop = {"never in the text", stop};
  const Answered cut = answer(*engine, request);
  ASSERT_TRUE(cut.finished) << cut.error;
  EXPECT_EQ(cut.finished->reason, FinishReason::stop_text);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST_P(BlockEngine, an_answer_fills_the_context_and_stops) {
  const auto engine = load({.context = 100});
  ASSERT_NE(engine, nullptr);
  const Answered answered = answer(*engine, request_of(70, 0));
  ASSERT_TRUE(answered.finished) << answered.error;
  EXPECT_EQ(answered.finished->completion_tokens, 30);
  EXPECT_EQ(answered.finished->reason, FinishReason::length);
}

TEST_P(BlockEngine, the_mask_token_is_never_written) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  constexpr int32_t kMask = 3;
  if (GetParam().name == std::string_view("diffusion_gemma")) GTEST_SKIP() << "it has none";
  Request request = request_of(30, 24);
  request.sampling.logit_bias = {{kMask, 100.0F}};
  const Answered answered = answer(*engine, request);
  ASSERT_EQ(answered.tokens.size(), 24U) << answered.error;
  EXPECT_EQ(std::ranges::count(answered.tokens, kMask), 0);
}

TEST_P(BlockEngine, many_requests_end_once_each_and_cancelled_ones_soon) {
  const auto engine = load({.context = 256, .max_sequences = 3});
  ASSERT_NE(engine, nullptr);
  Collector cancelled;
  const auto id = engine->submit(request_of(10, 0), cancelled.sink());
  ASSERT_TRUE(id.ok());
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i)
    requests.push_back(request_of(1 + 9 * i, 1 + i % 5));
  engine->cancel(*id);
  const std::vector<Answered> answers = answer_all(*engine, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(answers[i].finished) << answers[i].error;
    EXPECT_EQ(answers[i].n_endings, 1) << i;
    EXPECT_EQ(answers[i].finished->completion_tokens, 1 + static_cast<int32_t>(i) % 5);
  }
  cancelled.wait();
  EXPECT_EQ(cancelled.answered().n_endings, 1);
}

TEST_P(BlockEngine, what_blocks_cannot_honour_is_refused_by_name) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  const auto error_of = [&](auto change) {
    Request request = request_of(4, 4);
    change(request.sampling);
    const auto id = engine->submit(std::move(request), [](const Event&) {});
    return id.ok() ? std::string() : id.error().message;
  };
  EXPECT_NE(error_of([](Sampling& s) { s.repetition_penalty = 1.1F; }).find("repetition_penalty"),
            std::string::npos);
  EXPECT_NE(error_of([](Sampling& s) { s.frequency_penalty = 1.0F; }).find("frequency_penalty"),
            std::string::npos);
  EXPECT_NE(error_of([](Sampling& s) { s.presence_penalty = 1.0F; }).find("presence_penalty"),
            std::string::npos);
  EXPECT_NE(error_of([](Sampling& s) { s.n_logprobs = 0; }).find("logprobs"), std::string::npos);
  EXPECT_NE(error_of([](Sampling& s) { s.confidence = 1.5F; }).find("confidence"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, BlockEngine, testing::ValuesIn(kModels),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(BlockDiffusion, a_model_that_writes_token_by_token_refuses_a_confidence) {
  auto engine = Engine::load({.model = golden_path("llama_f32.gguf"), .backend = "ref"});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  Request request;
  request.prompt = TokenPrompt{{5, 6}};
  request.sampling.confidence = 0.5F;
  const auto id = (*engine)->submit(request, [](const Event&) {});
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.error().message.find("confidence"), std::string::npos) << id.error().message;
}

}  // namespace
}  // namespace kapitsa::test
