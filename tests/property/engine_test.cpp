// The engine from outside, on a tiny random model: every request ends once, errors say what is
// wrong, cancellation and destruction leave nothing behind.
#include "kapitsa/engine.h"
#include "support/checkpoint_files.h"
#include "support/wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <numeric>

namespace kapitsa::test {
namespace {

std::unique_ptr<Engine> load(LoadOptions options = {}) {
  options.model = golden_path("llama_f32.gguf");
  options.backend = "ref";
  options.threads = 1;
  auto engine = Engine::load(options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? std::move(*engine) : nullptr;
}

Request request_of(int32_t n_prompt, int32_t max_tokens) {
  Request request;
  std::vector<int32_t> tokens(static_cast<size_t>(n_prompt));
  std::iota(tokens.begin(), tokens.end(), 4);
  for (int32_t& token : tokens)
    token %= 200;
  request.prompt = TokenPrompt{tokens};
  request.max_tokens = max_tokens;
  request.sampling.seed = 1;
  request.ignore_eos = true;
  return request;
}

// A model folder as people have it: weights and config of one place, the tokenizer beside them.
class ModelFolder : public testing::Test {
protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "kapitsa_model_folder";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    take(golden_path("llama_hf"));
    take(golden_path("tiny_tokenizer"));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void take(const std::filesystem::path& from) {
    for (const auto& entry : std::filesystem::directory_iterator(from))
      std::filesystem::copy_file(entry.path(), folder_ / entry.path().filename());
  }

  Result<std::unique_ptr<Engine>> load() {
    return Engine::load(
        {.model = folder_, .backend = "cpu", .threads = 1, .compute = Compute::f32});
  }

  std::filesystem::path folder_;
};

TEST_F(ModelFolder, answers_with_its_own_tokenizer) {
  const auto engine = load();
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_TRUE((*engine)->model().has_chat_template);
  const auto golden = read_test_checkpoint(golden_path("llama_hf.golden.gguf"));
  const auto prompt = golden.string("golden.prompt_text");
  ASSERT_TRUE(prompt.ok());
  const auto tokens = (*engine)->tokenise(TextPrompt{*prompt});
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_EQ(*tokens, integers(golden, "prompt"));

  Request request;
  request.prompt = TextPrompt{*prompt};
  request.sampling.temperature = 0.0F;
  request.ignore_eos = true;
  const auto expected = integers(golden, "greedy.tokens");
  request.max_tokens = static_cast<int32_t>(expected.size());
  EXPECT_EQ(answer(**engine, request).tokens, expected);
}

TEST_F(ModelFolder, without_a_tokenizer_says_which_file_is_missing) {
  std::filesystem::remove(folder_ / "tokenizer.json");
  const auto engine = load();
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::not_found);
  EXPECT_NE(engine.error().message.find("tokenizer.json"), std::string::npos)
      << engine.error().message;
}

TEST(Engine, answers_have_the_length_that_was_asked_for) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  const Answered answered = answer(*engine, request_of(70, 9));
  ASSERT_TRUE(answered.finished) << answered.error;
  EXPECT_EQ(answered.tokens.size(), 9U);
  EXPECT_EQ(answered.finished->reason, FinishReason::length);
  EXPECT_EQ(answered.finished->prompt_tokens, 70);
  EXPECT_EQ(answered.finished->completion_tokens, 9);
  EXPECT_EQ(answered.finished->seed, 1U);
}

// Greedy answers of layers with a state, beside those of transformers: every token must have been
// committed to the state before the next one.
TEST(Engine, a_state_takes_in_every_token) {
  for (const auto& [file, golden_file] :
       {std::pair{"qwen3_5_bf16.gguf", "qwen3_5_hf.golden.gguf"},
        std::pair{"nemotron_h_moe_bf16.gguf", "nemotron_h_moe_hf.golden.gguf"}}) {
    const auto golden = read_test_checkpoint(golden_path(golden_file));
    const auto engine = Engine::load({.model = golden_path(file), .backend = "ref"});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const auto expected = integers(golden, "greedy.tokens");
    Request request;
    request.prompt = TokenPrompt{integers(golden, "prompt")};
    request.sampling.temperature = 0.0F;
    request.ignore_eos = true;
    request.max_tokens = static_cast<int32_t>(expected.size());
    EXPECT_EQ(answer(**engine, request).tokens, expected) << file;
  }
}

TEST(Engine, an_answer_fills_the_context_and_stops) {
  const auto engine = load({.context = 100});
  ASSERT_NE(engine, nullptr);
  const Answered answered = answer(*engine, request_of(70, 0));
  ASSERT_TRUE(answered.finished) << answered.error;
  EXPECT_EQ(answered.finished->completion_tokens, 30);
  EXPECT_EQ(answered.finished->reason, FinishReason::length);
}

TEST(Engine, a_prompt_longer_than_the_context_is_refused_with_both_numbers) {
  const auto engine = load({.context = 100});
  ASSERT_NE(engine, nullptr);
  const auto id = engine->submit(request_of(100, 1), [](const Event&) { FAIL(); });
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::context_overflow);
  EXPECT_NE(id.error().message.find("100 tokens"), std::string::npos) << id.error().message;
}

TEST(Engine, bad_requests_name_their_field) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  const auto error_of = [&](auto change) {
    Request request = request_of(4, 4);
    change(request);
    const auto id = engine->submit(std::move(request), [](const Event&) {});
    return id.ok() ? std::string() : id.error().message;
  };
  EXPECT_NE(error_of([](Request& r) { r.sampling.temperature = -1.0F; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(error_of([](Request& r) { r.sampling.top_p = 1.5F; }).find("top_p"), std::string::npos);
  EXPECT_NE(error_of([](Request& r) { r.max_tokens = -1; }).find("max_tokens"), std::string::npos);
  EXPECT_NE(error_of([](Request& r) { r.prompt = TokenPrompt{{3, 5000}}; }).find("5000"),
            std::string::npos);
  EXPECT_NE(error_of([](Request& r) { r.prompt = TokenPrompt{}; }).find("prompt"),
            std::string::npos);
  EXPECT_NE(error_of([](Request& r) { r.prompt = ChatPrompt{}; }).find("messages"),
            std::string::npos);
}

TEST(Engine, many_requests_end_exactly_once_each) {
  const auto engine = load({.max_sequences = 3});
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 20; ++i)
    requests.push_back(request_of(1 + 7 * i, 1 + i % 5));
  const std::vector<Answered> answers = answer_all(*engine, requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(answers[i].finished) << answers[i].error;
    EXPECT_EQ(answers[i].n_endings, 1) << i;
    EXPECT_EQ(answers[i].finished->completion_tokens, 1 + static_cast<int32_t>(i) % 5);
  }
}

TEST(Engine, a_batch_of_n_answers_like_n_singles) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 12; ++i) {
    Request request = request_of(3 + 29 * (i % 5), 10);
    request.sampling.seed = static_cast<uint64_t>(i);
    requests.push_back(std::move(request));
  }
  const auto single = load({.max_sequences = 1});
  const auto batch = load({.max_sequences = 12});
  ASSERT_NE(single, nullptr);
  ASSERT_NE(batch, nullptr);
  const std::vector<Answered> together = answer_all(*batch, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].tokens, answer(*single, requests[i]).tokens) << i;
  }
}

TEST(Engine, cancelled_requests_end_and_the_others_go_on) {
  const auto engine = load({.context = 256, .max_sequences = 2});
  ASSERT_NE(engine, nullptr);
  Collector cancelled;
  Collector queued;
  Collector kept;
  const auto a = engine->submit(request_of(10, 0), cancelled.sink());
  const auto b = engine->submit(request_of(10, 30), kept.sink());
  const auto c = engine->submit(request_of(10, 0), queued.sink());
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  engine->cancel(*c);
  engine->cancel(*a);
  engine->cancel(12345);  // never existed: ignored
  for (Collector* collector : {&cancelled, &queued, &kept})
    collector->wait();
  EXPECT_EQ(queued.answered().finished->reason, FinishReason::cancelled);
  EXPECT_EQ(kept.answered().finished->completion_tokens, 30);
  // A quick machine may have finished it before the cancellation arrived.
  EXPECT_TRUE(cancelled.answered().finished->reason == FinishReason::cancelled ||
              cancelled.answered().finished->completion_tokens == 246);
}

TEST(Engine, destruction_ends_what_runs_and_what_waits) {
  std::atomic<int> endings = 0;
  {
    const auto engine = load({.max_sequences = 1});
    ASSERT_NE(engine, nullptr);
    for (int i = 0; i < 5; ++i) {
      const auto id = engine->submit(request_of(50, 0), [&](const Event& event) {
        if (std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event)) {
          ++endings;
        }
      });
      ASSERT_TRUE(id.ok());
    }
  }
  EXPECT_EQ(endings, 5);
}

TEST(Engine, stop_texts_end_the_answer_before_them) {
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
  EXPECT_EQ(cut.finished->stop_text, stop);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST(Engine, logprobs_come_with_each_token) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  Request request = request_of(10, 6);
  request.sampling.temperature = 0.0F;
  request.sampling.n_logprobs = 3;
  const Answered answered = answer(*engine, request);
  ASSERT_EQ(answered.logprobs.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const TextDelta::Position& position = answered.logprobs[i];
    EXPECT_EQ(position.chosen.token, answered.tokens[i]);
    ASSERT_EQ(position.top.size(), 3U);
    EXPECT_EQ(position.top[0].token, position.chosen.token);  // greedy takes the likeliest
    EXPECT_GE(position.top[0].logprob, position.top[1].logprob);
    EXPECT_LE(position.top[0].logprob, 0.0F);
  }
}

TEST(EngineLoad, faults_of_the_file_are_one_line) {
  const auto error_of = [](const std::filesystem::path& path) {
    const auto engine = Engine::load({.model = path, .backend = "ref"});
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? Error{} : engine.error();
  };
  const auto folder = std::filesystem::temp_directory_path() / "kapitsa_engine_load";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(error_of(folder / "missing.gguf").code, ErrorCode::not_found);
  EXPECT_EQ(error_of(folder).code, ErrorCode::not_found);  // a model folder has a config.json
  {
    std::ofstream(folder / "text.gguf") << "this is not a model";
    std::ifstream source(golden_path("llama_f32.gguf"), std::ios::binary);
    std::string content(std::istreambuf_iterator<char>(source), {});
    content.resize(content.size() / 2);
    std::ofstream(folder / "half.gguf", std::ios::binary) << content;
  }
  for (const char* name : {"text.gguf", "half.gguf"}) {
    const Error error = error_of(folder / name);
    EXPECT_EQ(error.code, ErrorCode::corrupt_file) << name;
    EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  }
  std::filesystem::remove_all(folder);
}

TEST(EngineLoad, bad_options_name_their_field) {
  const auto message_of = [](LoadOptions options) {
    options.model = golden_path("llama_f32.gguf");
    const auto engine = Engine::load(options);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.error().message;
  };
  EXPECT_NE(message_of({.context = -1}).find("context"), std::string::npos);
  EXPECT_NE(message_of({.max_sequences = 0}).find("max_sequences"), std::string::npos);
  EXPECT_NE(message_of({.backend = "abacus"}).find("abacus"), std::string::npos);
  EXPECT_NE(message_of({.chat_template = "{% if %}"}).find("template"), std::string::npos);
}

}  // namespace
}  // namespace kapitsa::test
