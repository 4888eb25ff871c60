// Tokens, text and chat renderings of real vocabularies against the reference libraries
// (README.md). The SmolLM2 tests run when KAPITSA_TEST_MODEL names its GGUF file.
#include "base/file.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/jinja/format.h"
#include "weights/gguf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace kapitsa::text {
namespace {

const std::string kData = std::string(KAPITSA_TEST_DATA) + "/golden/data/";

template <typename T>
T expect(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

Tokenizer load_tokenizer(const weights::Checkpoint& checkpoint) {
  TokenizerSpec spec;
  spec.tokens = expect(checkpoint.strings("tokenizer.ggml.tokens"));
  spec.merges = expect(checkpoint.strings("tokenizer.ggml.merges"));
  const auto types = expect(checkpoint.integers("tokenizer.ggml.token_type", 0, 255));
  for (const int64_t type : types)
    spec.types.push_back(static_cast<TokenType>(type));
  spec.pre = expect(checkpoint.string("tokenizer.ggml.pre"));
  return expect(Tokenizer::create(spec));
}

std::vector<jinja::Value> cases(const std::string& file) {
  const std::string json = expect(read_text_file(kData + file));
  return expect(jinja::parse_json(json, jinja::Str::Origin::user)).as_list()->items;
}

const jinja::Value* field(const jinja::Value& item, const char* name) {
  return item.as_dict()->find(name);
}
std::string text_field(const jinja::Value& item, const char* name) {
  return field(item, name)->string().text();
}
std::vector<int32_t> ids_field(const jinja::Value& item, const char* name) {
  std::vector<int32_t> ids;
  for (const jinja::Value& id : field(item, name)->as_list()->items)
    ids.push_back(static_cast<int32_t>(id.integral()));
  return ids;
}

TEST(TokenizerGolden, tinyModelsTokenizeTheirPrompts) {
  for (const std::string variant : {"f32", "wide_head", "kquant"}) {
    const auto model = expect(weights::read_gguf(kData + "llama_" + variant + ".gguf"));
    const auto golden = expect(weights::read_gguf(kData + "llama_" + variant + ".golden.gguf"));
    const weights::Tensor* tokens = golden.find("prompt");
    ASSERT_NE(tokens, nullptr);
    std::vector<int32_t> expected(static_cast<size_t>(tokens->n_elements()));
    std::memcpy(expected.data(), tokens->data.data(), tokens->data.size());
    const std::string text = expect(golden.string("golden.prompt_text"));
    EXPECT_EQ(expect(load_tokenizer(model).encode(text, true)), expected) << variant;
  }
}

class SmolLm2Text : public testing::Test {
protected:
  void SetUp() override {
    const char* path = std::getenv("KAPITSA_TEST_MODEL");
    if (!path) GTEST_SKIP() << "KAPITSA_TEST_MODEL is not set";
    checkpoint_.emplace(expect(weights::read_gguf(std::filesystem::path(path))));
    tokenizer_.emplace(load_tokenizer(*checkpoint_));
  }
  std::optional<weights::Checkpoint> checkpoint_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(SmolLm2Text, tokenizesAndDecodesLikeTheReference) {
  const auto all = cases("smollm2_tokens.json");
  ASSERT_GE(all.size(), 200u);
  for (const jinja::Value& item : all) {
    const std::string text = text_field(item, "text");
    SCOPED_TRACE(text);
    const auto expected = ids_field(item, "ids");
    EXPECT_EQ(expect(tokenizer_->encode(text, true)), expected);
    const char* plain = field(item, "plain_ids") ? "plain_ids" : "ids";
    EXPECT_EQ(expect(tokenizer_->encode(text, false)), ids_field(item, plain));
    const char* decoded = field(item, "decoded") ? "decoded" : "text";
    EXPECT_EQ(detokenize(*tokenizer_, expected, {.show_control = true}), text_field(item, decoded));
  }
}

TEST_F(SmolLm2Text, rendersChatsLikeTheReference) {
  const auto chat =
      expect(ChatTemplate::parse(expect(checkpoint_->string("tokenizer.chat_template"))));
  for (const jinja::Value& item : cases("smollm2_chat.json")) {
    SCOPED_TRACE(text_field(item, "name"));
    std::vector<ChatMessage> messages;
    for (const jinja::Value& message : field(item, "messages")->as_list()->items)
      messages.push_back(
          {.role = text_field(message, "role"), .content = text_field(message, "content")});
    ChatTemplateOptions options;
    options.add_generation_prompt = field(item, "add_generation_prompt")->boolean();
    const auto segments = expect(chat.render(messages, options));
    std::string text;
    for (const Segment& segment : segments)
      text += segment.text;
    EXPECT_EQ(text, text_field(item, "text"));
    // The reference lets control tokens in messages count, the engine does not.
    EXPECT_EQ(expect(tokenizer_->encode(text, true)), ids_field(item, "ids"));
    const auto ids = expect(tokenizer_->encode(segments, {}));
    EXPECT_EQ(detokenize(*tokenizer_, ids, {.show_control = true}), text);
    size_t n_control = 0;
    for (const int32_t id : ids)
      n_control += tokenizer_->token_type(id) == TokenType::control ? 1 : 0;
    const bool default_system = messages[0].role != "system";
    const size_t n_turns = messages.size() + (default_system ? 1 : 0);
    EXPECT_EQ(n_control, 2 * n_turns + (options.add_generation_prompt ? 1 : 0));
  }
}

}  // namespace
}  // namespace kapitsa::text
