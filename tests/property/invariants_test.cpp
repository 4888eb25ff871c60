// Invariants 1, 2 and 4 of docs/architecture.md, bit for bit. A new architecture is one line in
// kModels, a new backend or instruction set one in
// device_cases().
#include "kapitsa/engine.h"
#include "model/arch.h"
#include "support/bits.h"
#include "support/checkpoint_files.h"
#include "support/kernel_case.h"
#include "support/plan_runner.h"
#include "support/wait.h"

#include <gtest/gtest.h>

#include <random>

namespace kapitsa::test {
namespace {

struct ModelCase {
  const char* name;
  const char* file;  // of tests/golden/data
};
constexpr ModelCase kModels[] = {
    {"llama", "llama_f32.gguf"},
    {"llama_kquant", "llama_kquant.gguf"},
    {"llama_bias", "llama_untied_bias.gguf"},
    {"laguna", "laguna_bf16.gguf"},
    {"muse_glimmer", "muse_glimmer_bf16.gguf"},
    {"nemotron_h", "nemotron_h_moe_bf16.gguf"},
    {"qwen3", "qwen3_bf16.gguf"},
    {"qwen3_moe", "qwen3_moe_bf16.gguf"},
    {"qwen3_5", "qwen3_5_bf16.gguf"},
    {"qwen3_5_moe", "qwen3_5_moe_bf16.gguf"},
    {"qwen3_next", "qwen3_next_bf16.gguf"},
    {"qwen4_exp", "qwen4_exp_bf16.gguf"},
};

struct DeviceCase {
  const char* name;
  const char* backend;
  const char* isa;  // "": the best
  backend::ComputeMode compute;
  DType cache = DType::f16;  // q8_0: of models whose heads are whole blocks
};
std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases = {
      {"ref", "ref", "", backend::ComputeMode::f32},
      {"cpu_f32", "cpu", "", backend::ComputeMode::f32},
      {"cpu_fast", "cpu", "", backend::ComputeMode::fast},
      {"cpu_avx2", "cpu", "avx2", backend::ComputeMode::fast},
      {"cpu_scalar", "cpu", "scalar", backend::ComputeMode::fast},
      {"cpu_int8_cache", "cpu", "", backend::ComputeMode::fast, DType::q8_0},
  };
  for (const std::string& name : backends_under_test()) {
    if (name != "cuda") continue;
    cases.push_back({"cuda_f32", "cuda", "", backend::ComputeMode::f32});
    cases.push_back({"cuda_fast", "cuda", "", backend::ComputeMode::fast});
  }
  return cases;
}

class Invariant : public testing::TestWithParam<std::tuple<ModelCase, DeviceCase>> {
protected:
  static constexpr int32_t kSequences = 8;

  void SetUp() override {
    file_.emplace(read_test_checkpoint(golden_path(std::get<0>(GetParam()).file)));
    const DeviceCase& device_case = std::get<1>(GetParam());
    auto model = model::load_model(*file_, {.kv_dtype = device_case.cache});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    random_.seed(7);
    const Status valid = plan::validate(model_->plan);
    if (!valid && device_case.cache == DType::q8_0) {
      GTEST_SKIP() << valid.error().message;
    }
    const auto device = backend::open_device(device_case.backend, {.force_isa = device_case.isa});
    if (*device_case.isa != '\0' && !device) {
      GTEST_SKIP() << "this machine has no " << device_case.isa;
    }
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto lowered = plan::lower(model_->plan, [&](const plan::Plan& plan, const plan::Op& op) {
      return (*device)->supports(plan, op);
    });
    // A backend may lack an op, but not the reference.
    if (!lowered && std::string_view(device_case.backend) != "ref") {
      GTEST_SKIP() << lowered.error().message;
    }
  }

  // Runs `work` on a fresh runner; one device per call, with this many threads.
  template <typename Work>
  void with_runner(int32_t n_threads, Work work, bool graphs = false) {
    const DeviceCase& device_case = std::get<1>(GetParam());
    auto device = backend::open_device(device_case.backend,
                                       {.n_threads = n_threads, .force_isa = device_case.isa});
    ASSERT_TRUE(device.ok()) << device.error().message;
    auto runner = PlanRunner::open(
        **device, model_->plan,
        {.n_sequences = kSequences, .compute = device_case.compute, .graphs = graphs});
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

  Bits row_bits(PlanRunner& runner, int32_t row) {
    auto logits = runner.logits(row);
    EXPECT_TRUE(logits.ok());
    return logits.ok() ? bits(*logits) : Bits{};
  }

  Bits all_bits(PlanRunner& runner) {
    auto logits = runner.read(model_->plan.logits);
    EXPECT_TRUE(logits.ok());
    return logits.ok() ? bits(*logits) : Bits{};
  }

  std::optional<weights::Checkpoint> file_;
  std::optional<model::Model> model_;
  std::mt19937 random_;
};

TEST_P(Invariant, a_row_alone_equals_the_row_among_eight) {
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t s = 0; s < kSequences; ++s)
    prompts.push_back(random_tokens(3 + 17 * s));
  const std::vector<int32_t> next = random_tokens(kSequences);
  const auto prefill = [&](PlanRunner& runner) {
    for (int32_t s = 0; s < kSequences; ++s) {
      ASSERT_TRUE(runner.prefill(s, prompts[static_cast<size_t>(s)]).ok());
    }
  };
  std::vector<Bits> alone(kSequences);
  with_runner(1, [&](PlanRunner& runner) {
    prefill(runner);
    for (int32_t s = 0; s < kSequences; ++s) {
      const auto i = static_cast<size_t>(s);
      ASSERT_TRUE(runner.decode({{s, {next[i]}, {}}}).ok());
      alone[i] = row_bits(runner, 0);
    }
  });
  with_runner(1, [&](PlanRunner& runner) {
    prefill(runner);
    std::vector<Rows> rows;
    for (int32_t s = 0; s < kSequences; ++s)
      rows.push_back({s, {next[static_cast<size_t>(s)]}, {}});
    ASSERT_TRUE(runner.decode(rows).ok());
    for (int32_t s = 0; s < kSequences; ++s) {
      EXPECT_EQ(row_bits(runner, s), alone[static_cast<size_t>(s)]) << "sequence " << s;
    }
  });
}

TEST_P(Invariant, a_tree_row_equals_the_same_path_as_single_steps) {
  const std::vector<int32_t> prompt = random_tokens(70);
  const std::vector<int32_t> tokens = random_tokens(8);
  const std::vector<int32_t> parents = {-1, 0, 0, 1, 1, 2, 5, 6};
  std::vector<Bits> tree(8);
  with_runner(1, [&](PlanRunner& runner) {
    ASSERT_TRUE(runner.prefill(0, prompt).ok());
    ASSERT_TRUE(runner.decode({{0, tokens, parents}}).ok());
    for (int32_t row = 0; row < 8; ++row)
      tree[static_cast<size_t>(row)] = row_bits(runner, row);
  });
  for (int32_t leaf = 0; leaf < 8; ++leaf) {
    std::vector<int32_t> path;
    for (int32_t row = leaf; row >= 0; row = parents[static_cast<size_t>(row)]) {
      path.insert(path.begin(), row);
    }
    with_runner(1, [&](PlanRunner& runner) {
      ASSERT_TRUE(runner.prefill(0, prompt).ok());
      for (const int32_t row : path) {
        const auto i = static_cast<size_t>(row);
        ASSERT_TRUE(runner.decode({{0, {tokens[i]}, {}}}).ok());
        EXPECT_EQ(row_bits(runner, 0), tree[i]) << "row " << row << " on the path to " << leaf;
        ASSERT_TRUE(runner.accept(0, {0}).ok());
      }
    });
  }
}

TEST_P(Invariant, an_accepted_path_leaves_what_single_steps_leave) {
  const std::vector<int32_t> prompt = random_tokens(33);
  const std::vector<int32_t> tokens = random_tokens(4);
  const int32_t last = random_tokens(1)[0];
  Bits stepped;
  with_runner(1, [&](PlanRunner& runner) {
    ASSERT_TRUE(runner.prefill(0, prompt).ok());
    for (const size_t i : {size_t{0}, size_t{2}, size_t{3}}) {
      ASSERT_TRUE(runner.decode({{0, {tokens[i]}, {}}}).ok());
      ASSERT_TRUE(runner.accept(0, {0}).ok());
    }
    ASSERT_TRUE(runner.decode({{0, {last}, {}}}).ok());
    stepped = row_bits(runner, 0);
  });
  for (const bool flush : {false, true}) {
    with_runner(1, [&](PlanRunner& runner) {
      ASSERT_TRUE(runner.prefill(0, prompt).ok());
      ASSERT_TRUE(runner.decode({{0, tokens, {-1, 0, 0, 2}}}).ok());
      ASSERT_TRUE(runner.accept(0, {0, 2, 3}, flush).ok());
      ASSERT_TRUE(runner.decode({{0, {last}, {}}}).ok());
      EXPECT_EQ(row_bits(runner, 0), stepped) << (flush ? "flushed" : "replayed");
    });
  }
}

TEST_P(Invariant, prefill_cut_at_random_grid_points_equals_whole) {
  const std::vector<int32_t> prompt = random_tokens(250);
  const std::span<const int32_t> tokens = prompt;
  Bits whole;
  with_runner(1, [&](PlanRunner& runner) {
    ASSERT_TRUE(runner.prefill(0, tokens).ok());
    whole = all_bits(runner);
  });
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<size_t> ends;
    for (size_t grid = 64; grid < tokens.size(); grid += 64) {
      if (random_() % 2 == 0 || (ends.empty() && grid + 64 >= tokens.size())) ends.push_back(grid);
    }
    ends.push_back(tokens.size());
    with_runner(1, [&](PlanRunner& runner) {
      Bits found;
      size_t from = 0;
      for (const size_t to : ends) {
        ASSERT_TRUE(runner.prefill(0, tokens.subspan(from, to - from)).ok());
        const Bits part = all_bits(runner);
        found.insert(found.end(), part.begin(), part.end());
        from = to;
      }
      EXPECT_EQ(found, whole) << ends.size() << " pieces, the first of " << ends.front();
    });
  }
}

TEST_P(Invariant, threads_do_not_change_bits) {
  const std::vector<int32_t> prompt = random_tokens(100);
  const std::vector<int32_t> tokens = random_tokens(5);
  std::vector<Bits> found;
  for (const int32_t n_threads : {1, 2, 3}) {
    with_runner(n_threads, [&](PlanRunner& runner) {
      ASSERT_TRUE(runner.prefill(0, prompt).ok());
      Bits all = all_bits(runner);
      ASSERT_TRUE(runner.decode({{0, tokens, {}}}).ok());
      const Bits decoded = all_bits(runner);
      all.insert(all.end(), decoded.begin(), decoded.end());
      found.push_back(std::move(all));
    });
  }
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
}

TEST_P(Invariant, the_same_passes_twice_give_the_same_bits) {
  const std::vector<int32_t> prompt = random_tokens(90);
  std::vector<Bits> found;
  for (int i = 0; i < 2; ++i) {
    with_runner(2, [&](PlanRunner& runner) {
      ASSERT_TRUE(runner.prefill(0, prompt).ok());
      found.push_back(all_bits(runner));
    });
  }
  EXPECT_EQ(found[1], found[0]);
}

TEST_P(Invariant, graphs_do_not_change_bits) {
  const std::vector<int32_t> prompt = random_tokens(90);
  const std::vector<int32_t> tokens = random_tokens(5);
  const int32_t last = random_tokens(1)[0];
  std::vector<Bits> found;
  for (const bool graphs : {false, true}) {
    with_runner(
        1,
        [&](PlanRunner& runner) {
          ASSERT_TRUE(runner.prefill(0, prompt).ok());
          ASSERT_TRUE(runner.decode({{0, tokens, {-1, 0, 0, 1, 2}}}).ok());
          Bits all = all_bits(runner);
          ASSERT_TRUE(runner.accept(0, {0, 2, 4}).ok());
          ASSERT_TRUE(runner.decode({{0, {last}, {}}}).ok());
          const Bits next = all_bits(runner);
          all.insert(all.end(), next.begin(), next.end());
          found.push_back(std::move(all));
        },
        graphs);
  }
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1], found[0]);
}

// Invariant 2, through the whole engine: a sampled answer is a function of the request alone.
TEST_P(Invariant, sampled_answers_do_not_depend_on_neighbours_or_repetition) {
  const auto& [model_case, device_case] = GetParam();
  std::vector<Request> requests;
  for (int32_t i = 0; i < kSequences; ++i) {
    Request request;
    request.prompt = TokenPrompt{random_tokens(2 + 23 * i)};
    request.sampling = {.temperature = 0.5F + 0.25F * static_cast<float>(i % 4),
                        .top_k = i % 2 == 0 ? 0 : 40,
                        .top_p = i % 3 == 0 ? 1.0F : 0.9F,
                        .repetition_penalty = i % 4 == 0 ? 1.3F : 1.0F,
                        .seed = static_cast<uint64_t>(i / 2)};
    request.max_tokens = 12;
    request.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  const auto load = [&](int32_t max_sequences) {
    auto engine = Engine::load(
        {.model = golden_path(model_case.file),
         .backend = device_case.backend,
         .max_sequences = max_sequences,
         .threads = 2,
         .isa = device_case.isa,
         .compute = device_case.compute == backend::ComputeMode::f32 ? Compute::f32 : Compute::fast,
         .kv_type = device_case.cache == DType::q8_0 ? KvType::int8 : KvType::f16});
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
    EXPECT_EQ(answers[i].tokens, single.tokens) << "request " << i;
    EXPECT_EQ(answer(*together, requests[i]).tokens, single.tokens) << "request " << i << ", again";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Invariant, testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(device_cases())),
    [](const auto& param) {
      return std::string(std::get<0>(param.param).name) + "_on_" + std::get<1>(param.param).name;
    });

}  // namespace
}  // namespace kapitsa::test
