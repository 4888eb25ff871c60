// tokenizer.json files and SentencePiece vocabularies against the reference libraries (data made by
// tools/golden/tokenizer_json_cases.py), hostile files, and tokenizer_config.json.
#include "base/file.h"
#include "text/detokenizer.h"
#include "text/jinja/format.h"
#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kapitsa::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kData = std::string(KAPITSA_TEST_DATA) + "/unit/text/data/";

std::vector<jinja::Value> rows(const std::string& file) {
  const auto json = read_text_file(kData + file);
  EXPECT_TRUE(json.ok()) << json.error().message;
  const auto document = jinja::parse_json(*json, jinja::Str::Origin::user);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document->as_list()->items;
}

const jinja::Value& field(const jinja::Value& row, const char* name) {
  return *row.as_dict()->find(name);
}

std::vector<int32_t> ids_of(const jinja::Value& row) {
  std::vector<int32_t> ids;
  for (const jinja::Value& id : field(row, "ids").as_list()->items)
    ids.push_back(static_cast<int32_t>(id.integral()));
  return ids;
}

TEST(TokenizerJson, encodesAndDecodesLikeTheReference) {
  const auto files = rows("tokenizer_json.json");
  ASSERT_GE(files.size(), 13u);
  for (const jinja::Value& file : files) {
    const std::string name = field(file, "name").string().text();
    const auto tokenizer = read_tokenizer_json(field(file, "file").string().view());
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.error().message;
    for (const jinja::Value& item : field(file, "cases").as_list()->items) {
      const std::string& text = field(item, "text").string().text();
      SCOPED_TRACE(name + ": '" + text + "'");
      const auto ids = tokenizer->encode(text, true, {.add_special = true});
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      EXPECT_EQ(*ids, ids_of(item));
      if (const jinja::Value* decoded = item.as_dict()->find("decoded")) {
        EXPECT_EQ(detokenize(*tokenizer, *ids, {.show_control = true, .at_start = true}),
                  decoded->string().text());
      }
    }
  }
}

TEST(SentencePiece, vocabulariesEncodeLikeTheReference) {
  const auto models = rows("sentencepiece.json");
  ASSERT_GE(models.size(), 4u);
  for (const jinja::Value& model : models) {
    TokenizerSpec spec;
    spec.model = field(model, "model").string().view() == "bpe" ? TokenizerModel::spm_bpe
                                                                : TokenizerModel::unigram;
    spec.add_space_prefix = field(model, "add_space_prefix").boolean();
    spec.unk = static_cast<int32_t>(field(model, "unk").integral());
    for (const jinja::Value& token : field(model, "tokens").as_list()->items)
      spec.tokens.push_back(token.string().view());
    for (const jinja::Value& score : field(model, "scores").as_list()->items)
      spec.scores.push_back(score.number());
    for (const jinja::Value& type : field(model, "types").as_list()->items)
      spec.types.push_back(static_cast<TokenType>(type.integral()));
    const auto tokenizer = Tokenizer::create(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (const jinja::Value& item : field(model, "cases").as_list()->items) {
      const std::string& text = field(item, "text").string().text();
      SCOPED_TRACE(field(model, "name").string().text() + ": '" + text + "'");
      const auto ids = tokenizer->encode(text, false);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(*ids, ids_of(item));
      const bool has_unknown =
          std::find(ids->begin(), ids->end(), tokenizer->find_special("<unk>")) != ids->end();
      const bool has_mark = text.find("\u2581") != std::string::npos;
      if (!has_unknown && !has_mark) {
        EXPECT_EQ(detokenize(*tokenizer, *ids, {.at_start = true}), text);
      }
    }
  }
}

TEST(SentencePiece, invalidUtf8FallsBackToBytes) {
  TokenizerSpec spec;
  spec.model = TokenizerModel::spm_bpe;
  std::vector<std::string> tokens{"a", "\u2581", "aa"};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
  }
  spec.tokens.assign(tokens.begin(), tokens.end());
  spec.scores.assign(tokens.size(), 0.0);
  spec.types.assign(tokens.size(), TokenType::byte);
  spec.types[0] = spec.types[1] = spec.types[2] = TokenType::normal;
  const auto tokenizer = Tokenizer::create(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_THAT(*tokenizer->encode("aaa\xFF\xE4\xB8 a\u00e9"),
              ElementsAre(2, 0, 3 + 0xFF, 3 + 0xE4, 3 + 0xB8, 1, 0, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(tokenizer->token_bytes(3 + 0xE4), "\xE4");
}

// A valid small file, to be broken.
constexpr const char* kSmall = R"({
 "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
 "normalizer": {"type": "NFC"},
 "pre_tokenizer": {"type": "Split", "pattern": {"String": "."}, "behavior": "Isolated"},
 "post_processor": {"type": "TemplateProcessing",
   "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
   "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
 "decoder": {"type": "Fuse"},
 "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2, ".": 5}, "merges": ["a b"]}
})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerJson, smallFileWorksWithHolesAndConfig) {
  TokenizerConfig config;
  config.eos = "<s>";
  config.add_bos = false;
  const auto plain = read_tokenizer_json(kSmall);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_THAT(*plain->encode("ab.a", false, {.add_special = true}), ElementsAre(3, 2, 5, 0));
  EXPECT_EQ(plain->bos(), 3);
  EXPECT_EQ(plain->token_type(4), TokenType::unused);
  const auto configured = read_tokenizer_json(kSmall, config);
  ASSERT_TRUE(configured.ok());
  EXPECT_THAT(*configured->encode("ab", false, {.add_special = true}), ElementsAre(2));
  EXPECT_EQ(configured->eos(), 3);
}

TEST(TokenizerJson, brokenFilesAreRefusedInOneLine) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"{", "[", "invalid"},
      {R"("type": "NFC")", R"("type": "Precompiled")", "normalizer: type 'Precompiled'"},
      {R"("type": "NFC")", R"("type": "a\nb")", "normalizer: type 'a\\x0Ab'"},
      {R"({"type": "NFC"})", "[]", "normalizer: expected an object"},
      {R"({"type": "NFC"})", R"({"type": "Sequence"})", "'normalizers'"},
      {R"({"type": "NFC"})", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})",
       "pattern is empty"},
      {R"({"String": "."})", R"({"Regex": "("})", "pre-tokenizer pattern '('"},
      {R"({"String": "."})", R"({"Regex": "(\n"})", "pattern '(\\x0A'"},
      {R"({"String": "."})", R"({"Regex": "[a-z&&[b]]"})", "nested and intersected"},
      {R"({"String": "."})", R"({})", "expected a string 'String'"},
      {R"("behavior": "Isolated")", R"("behavior": "Odd")", "behavior 'Odd'"},
      {R"("behavior": "Isolated")", R"("invert": 1)", "true or false"},
      {R"("type": "BPE")", R"("type": "WordLevel")", "model.type"},
      {R"("vocab": {)", R"("vocab": {"q": "x", )", "integer ids"},
      {R"("a": 0)", R"("a": -1)", "token id -1"},
      {R"("a": 0)", R"("a": 99999999)", "token id 99999999"},
      {R"("a": 0)", R"("a": 1)", "token id 1: expected one token, found 'a' and 'b'"},
      {R"("a": 0)", R"("a": 0, "a": 6)", "expected each key of an object once, found 'a' again"},
      {R"("id": 3, "content")", R"("id": 1, "content")", "token id 1: expected one token, found"},
      {R"("a b")", R"("a c")", "'c' is not a token"},
      {R"("a b")", R"("ab")", "without a space"},
      {R"("a b")", R"(["a"])", "pairs of strings"},
      {R"("merges": ["a b"])", R"("merges": 3)", "model.merges"},
      {R"("unk_token": null)", R"("unk_token": 3)", "'unk_token'"},
      {R"("unk_token": null)", R"("end_of_word_suffix": "</w>")", "end_of_word_suffix"},
      {R"("id": 3, "content")", R"("id": 3, "single_word": "x", "content")", "'single_word'"},
      {R"("id": 3, "content")", R"("content")", "'id'"},
      {R"("ids": [3])", R"("ids": [3, 4])", "special tokens of one id"},
      {R"("ids": [3])", R"("ids": [77])", "77 is not a token"},
      {R"("type": "TemplateProcessing")", R"("type": "BertProcessing")", "post_processor"},
      {R"("type": "Fuse")", R"("type": "WordPiece")", "decoder: type 'WordPiece'"},
      {R"("type": "Fuse")", R"("type": "Strip", "content": " ", "start": 2, "stop": 0)", "Strip"},
  };
  for (const auto& [from, to, expected] : cases) {
    const auto tokenizer = read_tokenizer_json(replaced(kSmall, from, to));
    ASSERT_FALSE(tokenizer.ok()) << to;
    EXPECT_TRUE(tokenizer.error().message.starts_with("tokenizer.json: "))
        << tokenizer.error().message;
    if (std::string(expected) != "invalid") {
      EXPECT_THAT(tokenizer.error().message, HasSubstr(expected));
    }
    EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(read_tokenizer_json("").ok());
  EXPECT_FALSE(read_tokenizer_json("3").ok());
}

TEST(TokenizerJson, everyCutOfAFileIsAnErrorAndNoCrash) {
  const std::string file(kSmall);
  for (size_t n = 0; n < file.rfind('}'); ++n)
    EXPECT_FALSE(read_tokenizer_json(file.substr(0, n)).ok()) << n;
}

TEST(TokenizerJson, userTextNeverBecomesAControlToken) {
  const auto tokenizer = read_tokenizer_json(kSmall);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT(*tokenizer->encode("a<s>b", true), ElementsAre(0, 3, 1));
  EXPECT_THAT(*tokenizer->encode("a<s>b", false), testing::Not(testing::Contains(3)));
  const std::string normalized =
      replaced(kSmall, R"("special": true)", R"("special": true, "normalized": true)");
  const auto second = read_tokenizer_json(normalized);
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(*second->encode("a<s>b", true), ElementsAre(0, 3, 1));
  EXPECT_THAT(*second->encode("a<s>b", false), testing::Not(testing::Contains(3)));
  const std::vector<Segment> mixed{{"a<s>", true}, {"b", false}};
  EXPECT_THAT(*tokenizer->encode(mixed, {}), ElementsAre(0, 3, 1));
  EXPECT_EQ(second->find_special("<s>"), 3);
}

TEST(TokenizerConfig, readsBothFormsOfTokensAndTemplates) {
  const auto config = read_tokenizer_config(
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
          "add_bos_token": true, "chat_template": [{"name": "tool_use", "template": "t"},
                                                   {"name": "default", "template": "d"}]})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->bos, "<s>");
  EXPECT_EQ(config->eos, "</s>");
  EXPECT_EQ(config->pad, "");
  EXPECT_EQ(config->add_bos, true);
  EXPECT_EQ(config->add_eos, std::nullopt);
  EXPECT_EQ(config->chat_template, "d");
  EXPECT_EQ(read_tokenizer_config(R"({"chat_template": "x"})")->chat_template, "x");
  EXPECT_FALSE(read_tokenizer_config("[]").ok());
  EXPECT_FALSE(read_tokenizer_config(R"({"chat_template": 4})").ok());
  EXPECT_FALSE(
      read_tokenizer_config(R"({"chat_template": [{"name": "rag", "template": "x"}]})").ok());
}

}  // namespace
}  // namespace kapitsa::text
