// The real SmolLM2-135M-Instruct (the file that KAPITSA_TEST_MODEL names) against transformers in
// double precision on weights dequantised from the same file: logits over 500 tokens, greedy
// answers, the chat template and the tokenizer. Skipped where the file is not there.
#include "base/env.h"
#include "kapitsa/engine.h"
#include "model/arch.h"
#include "support/checkpoint_files.h"
#include "support/plan_runner.h"
#include "support/wait.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kapitsa::test {
namespace {

class SmolLm2 : public testing::Test {
protected:
  void SetUp() override {
    const auto path = environment("KAPITSA_TEST_MODEL");
    if (!path) GTEST_SKIP() << "KAPITSA_TEST_MODEL does not name the model file";
    path_ = *path;
    golden_.emplace(read_test_checkpoint(golden_path("smollm2.golden.gguf")));
  }

  std::unique_ptr<Engine> load(Compute compute, int32_t max_sequences = 1) {
    auto engine = Engine::load({.model = path_,
                                .backend = "cpu",
                                .context = 1024,
                                .max_sequences = max_sequences,
                                .threads = 2,
                                .compute = compute});
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  std::filesystem::path path_;
  std::optional<weights::Checkpoint> golden_;
};

// Logits of all 500 positions in f32, prefilled in pieces and the last 20 decoded one by one.
TEST_F(SmolLm2, logits_of_500_tokens_are_within_1e_3) {
  const auto file = read_test_checkpoint(path_);
  const auto model = model::load_model(file, {.kv_dtype = DType::f32});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto device = backend::open_device("cpu", {.n_threads = 2});
  ASSERT_TRUE(device.ok()) << device.error().message;
  auto runner = PlanRunner::open(**device, model->plan, {.n_sequences = 1, .max_tokens = 512});
  ASSERT_TRUE(runner.ok()) << runner.error().message;

  const auto tokens = integers(*golden_, "tokens");
  const auto ids = integers(*golden_, "sampled.ids");
  const auto expected = floats(*golden_, "sampled.logits");
  const auto log_sum = floats(*golden_, "logsumexp");
  const auto argmax = integers(*golden_, "argmax");
  const auto gap = floats(*golden_, "max.gap");
  const auto n_vocab = static_cast<size_t>(model->plan.n_vocab);
  ASSERT_EQ(tokens.size(), 500U);

  std::vector<float> found;
  double largest = 0.0;
  size_t position = 0;
  const auto take_rows = [&] {
    const auto rows = runner->read(model->plan.logits);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    for (size_t at = 0; at < rows->size(); at += n_vocab, ++position) {
      const std::span<const float> row = std::span(*rows).subspan(at, n_vocab);
      double sum = 0.0;
      size_t best = 0;
      for (size_t v = 0; v < n_vocab; ++v) {
        sum += std::exp(static_cast<double>(row[v]));
        if (row[v] > row[best]) best = v;
      }
      EXPECT_NEAR(std::log(sum), log_sum[position], 1e-3) << "position " << position;
      if (gap[position] > 1e-3F) {
        EXPECT_EQ(static_cast<int32_t>(best), argmax[position]) << "position " << position;
      }
      for (size_t i = 0; i < ids.size(); ++i) {
        found.push_back(row[static_cast<size_t>(ids[i])]);
        const double e = expected[position * ids.size() + i];
        largest = std::max(largest, std::abs(found.back() - e) / std::max(1.0, std::abs(e)));
      }
    }
  };
  const std::span<const int32_t> all = tokens;
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 192}, {192, 256}, {256, 480}}) {
    ASSERT_TRUE(runner->prefill(0, all.subspan(from, to - from)).ok());
    take_rows();
  }
  for (size_t i = 480; i < 500; ++i) {
    ASSERT_TRUE(runner->decode({{.sequence = 0, .tokens = {tokens[i]}, .parents = {}}}).ok());
    take_rows();
    ASSERT_TRUE(runner->accept(0, {0}).ok());
  }
  ASSERT_EQ(position, 500U);
  EXPECT_LT(relative_error(found, expected), 2e-5);
  EXPECT_LT(largest, 1e-3);
}

TEST_F(SmolLm2, greedy_answers_in_f32_are_those_of_the_reference) {
  const auto engine = load(Compute::f32);
  ASSERT_NE(engine, nullptr);
  const auto count = golden_->integer("golden.greedy.count", 1, 100);
  ASSERT_TRUE(count.ok());
  for (int64_t k = 0; k < *count; ++k) {
    const std::string at = "greedy." + std::to_string(k);
    const auto expected = integers(*golden_, at + ".tokens");
    Request request;
    request.prompt = TokenPrompt{integers(*golden_, at + ".prompt")};
    request.sampling.temperature = 0.0F;
    request.max_tokens = static_cast<int32_t>(expected.size());
    request.ignore_eos = true;
    const Answered answered = answer(*engine, request);
    ASSERT_TRUE(answered.finished) << answered.error;
    EXPECT_EQ(answered.tokens, expected) << at;
  }
}

// Invariant 2 and fairness from outside: eight requests at once, each as if alone.
TEST_F(SmolLm2, eight_requests_at_once_answer_as_if_alone) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    Request request;
    request.prompt =
        ChatPrompt{.messages = {{.role = "user",
                                 .content = "Tell me about " +
                                            std::string(i + 1, 'a' + static_cast<char>(i))}}};
    request.sampling = {.temperature = 1.0F, .top_p = 0.95F, .seed = 100 + i};
    request.max_tokens = 24;
    requests.push_back(std::move(request));
  }
  std::vector<std::vector<int32_t>> alone;
  {
    const auto engine = load(Compute::fast);
    ASSERT_NE(engine, nullptr);
    for (const Request& request : requests)
      alone.push_back(answer(*engine, request).tokens);
  }
  const auto engine = load(Compute::fast, 8);
  ASSERT_NE(engine, nullptr);
  const std::vector<Answered> together = answer_all(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_FALSE(alone[i].empty());
    EXPECT_EQ(together[i].tokens, alone[i]) << "request " << i;
  }
}

TEST_F(SmolLm2, the_same_seed_gives_the_same_answer_and_another_seed_another) {
  const auto engine = load(Compute::fast);
  ASSERT_NE(engine, nullptr);
  const auto text_of = [&](uint64_t seed) {
    Request request;
    request.prompt = ChatPrompt{.messages = {{.role = "user", .content = "Write a short poem."}}};
    request.sampling = {.temperature = 1.0F, .seed = seed};
    request.max_tokens = 32;
    return answer(*engine, request).text;
  };
  const std::string first = text_of(11);
  EXPECT_EQ(text_of(11), first);
  EXPECT_NE(text_of(12), first);
}

}  // namespace
}  // namespace kapitsa::test
