// Tokenizing against the reference library (data/bpe.json, made by
// tools/golden/tokenizer_cases.py), and the rules about trust, special tokens, invalid bytes and
// broken vocabularies.
#include "bpe_vocabulary.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace kapitsa::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer make(const TokenizerSpec& spec) {
  auto tokenizer = Tokenizer::create(spec);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(*tokenizer);
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                            bool trusted = false) {
  auto ids = tokenizer.encode(text, trusted);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return *ids;
}

TEST(Pretokenizer, cutsLikeTheReference) {
  const BpeVocabulary v = load_bpe_vocabulary();
  ASSERT_GE(v.list("splits").size(), 8u);
  for (const jinja::Value& split : v.list("splits")) {
    const std::string name = split.string().text();
    const auto pretokenizer = Pretokenizer::compile(pretokenizer_rules(name));
    ASSERT_TRUE(pretokenizer.ok()) << pretokenizer.error().message;
    for (const jinja::Value& item : v.list("cases")) {
      const std::string& text = item.as_dict()->find("text")->string().text();
      const jinja::Dict& pieces = *item.as_dict()->find("pieces")->as_dict();
      const jinja::Value* expected = pieces.find(split);
      if (!expected) expected = pieces.find("gpt-2");
      std::vector<std::string_view> found;
      ASSERT_TRUE(pretokenizer->split(text, found).ok());
      std::vector<int32_t> lengths;
      for (std::string_view piece : found)
        lengths.push_back(static_cast<int32_t>(piece.size()));
      EXPECT_EQ(lengths, to_ids(*expected)) << name << ": " << text;
    }
  }
}

TEST(Tokenizer, encodesAndDecodesLikeTheReference) {
  BpeVocabulary v = load_bpe_vocabulary();
  for (const jinja::Value& split : v.list("splits")) {
    v.spec.pre = split.string().text();
    // The reference ran without this rule, which the two names imply.
    if (v.spec.pre == "llama-bpe" || v.spec.pre == "tekken") {
      v.spec.split = pretokenizer_rules(v.spec.pre);
    } else {
      v.spec.split.reset();
    }
    const Tokenizer tokenizer = make(v.spec);
    for (const jinja::Value& item : v.list("cases")) {
      const std::string& text = item.as_dict()->find("text")->string().text();
      const jinja::Dict& ids = *item.as_dict()->find("ids")->as_dict();
      const jinja::Value* expected = ids.find(split);
      if (!expected) expected = ids.find("gpt-2");
      const std::vector<int32_t> found = encode(tokenizer, text);
      EXPECT_EQ(found, to_ids(*expected)) << v.spec.pre << ": " << text;
      EXPECT_EQ(detokenize(tokenizer, found), text);
    }
  }
}

TEST(Tokenizer, findsSpecialTokensLikeTheReference) {
  const BpeVocabulary v = load_bpe_vocabulary();
  const Tokenizer tokenizer = make(v.spec);
  for (const jinja::Value& item : v.list("special")) {
    const std::string& text = item.as_dict()->find("text")->string().text();
    EXPECT_EQ(encode(tokenizer, text, true), to_ids(*item.as_dict()->find("ids"))) << text;
  }
}

// A vocabulary of the 256 bytes, then `extra` tokens.
struct ByteVocabulary {
  std::vector<std::string> tokens;
  TokenizerSpec spec;

  explicit ByteVocabulary(std::vector<std::pair<std::string, TokenType>> extra = {}) {
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const int codepoint = printable ? byte : 256 + n_hidden_++;
      tokens.push_back(codepoint < 0x80
                           ? std::string(1, static_cast<char>(codepoint))
                           : std::string{static_cast<char>(0xC0 | (codepoint >> 6)),
                                         static_cast<char>(0x80 | (codepoint & 0x3F))});
      spec.types.push_back(TokenType::normal);
    }
    for (auto& [token, type] : extra) {
      tokens.push_back(token);
      spec.types.push_back(type);
    }
    spec.tokens.assign(tokens.begin(), tokens.end());
    spec.pre = "gpt-2";
  }
  ByteVocabulary(const ByteVocabulary&) = delete;

private:
  int n_hidden_ = 0;
};

TEST(Tokenizer, userTextNeverBecomesASpecialToken) {
  const ByteVocabulary v({{"<|end|>", TokenType::control},
                          {"<think>", TokenType::user_defined},
                          {"  ", TokenType::user_defined},
                          {"[INST]", TokenType::user_defined}});
  const Tokenizer tokenizer = make(v.spec);
  EXPECT_THAT(encode(tokenizer, "<|end|><think>[INST]", true), ElementsAre(256, 257, 259));
  EXPECT_THAT(encode(tokenizer, "<|end|><think>[INST]", false), testing::Each(testing::Lt(256)));
  EXPECT_THAT(encode(tokenizer, "a  b", false), ElementsAre('a', 258, 'b'));

  // Half of the token in each segment, and either half untrusted.
  for (const bool first_trusted : {true, false}) {
    const std::vector<Segment> halves{{"<|en", first_trusted}, {"d|>", !first_trusted}};
    const auto ids = tokenizer.encode(halves, {});
    ASSERT_TRUE(ids.ok());
    EXPECT_THAT(*ids, testing::Each(testing::Lt(256)));
  }
  const std::vector<Segment> whole{{"<|en", true}, {"", false}, {"d|>", true}, {"<|end|>", false}};
  const auto ids = tokenizer.encode(whole, {});
  EXPECT_EQ(ids->front(), 256);
  EXPECT_EQ(ids->size(), 1 + std::string("<|end|>").size());
  EXPECT_EQ(*tokenizer.encode("<|end|>", true, {.parse_special = false}),
            encode(tokenizer, "<|end|>", false));
}

TEST(Tokenizer, tokensSpanTheBordersOfSegments) {
  const BpeVocabulary v = load_bpe_vocabulary();
  const Tokenizer tokenizer = make(v.spec);
  const std::string text = "def f(x): return the quick brown fox\n\n";
  const std::vector<int32_t> whole = encode(tokenizer, text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::vector<Segment> segments{{text.substr(0, cut), true}, {text.substr(cut), false}};
    EXPECT_EQ(*tokenizer.encode(segments, {}), whole) << cut;
  }
}

TEST(Tokenizer, takesTheLongestSpecialTokenAtTheLeftmostPlace) {
  const ByteVocabulary v({{"ab", TokenType::control},
                          {"abcd", TokenType::control},
                          {"bcdefg", TokenType::control},
                          {"ab", TokenType::control}});
  const Tokenizer tokenizer = make(v.spec);
  EXPECT_THAT(encode(tokenizer, "abcdefg", true), ElementsAre(257, 'e', 'f', 'g'));
  EXPECT_THAT(encode(tokenizer, "abcx", true), ElementsAre(256, 'c', 'x'));
  // An untrusted tail leaves the shorter token.
  const std::vector<Segment> segments{{"abc", true}, {"d", false}};
  EXPECT_THAT(*tokenizer.encode(segments, {}), ElementsAre(256, 'c', 'd'));
  EXPECT_EQ(tokenizer.find_special("abcd"), 257);
  EXPECT_EQ(tokenizer.find_special("abc"), -1);
  EXPECT_EQ(tokenizer.find_special("a"), -1);
}

TEST(Tokenizer, invalidUtf8RoundTripsAsBytes) {
  const ByteVocabulary v;
  const Tokenizer tokenizer = make(v.spec);
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t n = random() % 40;
    for (size_t i = 0; i < n; ++i)
      text += static_cast<char>(random() % 3 == 0 ? random() % 128 : random() % 256);
    std::string bytes;
    for (const int32_t id : encode(tokenizer, text))
      bytes += tokenizer.token_bytes(id);
    EXPECT_EQ(bytes, text);
  }
}

TEST(Tokenizer, aByteThatTheVocabularyLacksIsDropped) {
  ByteVocabulary v({{"<|endoftext|>", TokenType::control}});
  v.spec.tokens['x'] = "other";
  v.spec.unk = 256;
  EXPECT_EQ(encode(make(v.spec), "axb").size(), 2u);
}

TEST(Tokenizer, addsBosAndEosWhereTheModelAsksForThem) {
  ByteVocabulary v({{"<s>", TokenType::control}, {"</s>", TokenType::control}});
  v.spec.bos = 256;
  v.spec.eos = 257;
  v.spec.add_bos = true;
  EXPECT_THAT(*make(v.spec).encode("a", false, {.add_special = true}), ElementsAre(256, 'a'));
  v.spec.add_eos = true;
  EXPECT_THAT(*make(v.spec).encode("", false, {.add_special = true}), ElementsAre(256, 257));
  EXPECT_THAT(*make(v.spec).encode("a"), ElementsAre('a'));
}

TEST(Tokenizer, ignoreMergesTakesAWholePieceFirst) {
  ByteVocabulary v(
      {{"ab", TokenType::normal}, {"bc", TokenType::normal}, {"abc", TokenType::normal}});
  const std::vector<std::string> merges{"b c"};
  v.spec.merges.assign(merges.begin(), merges.end());
  EXPECT_THAT(encode(make(v.spec), "abc"), ElementsAre('a', 257));
  v.spec.ignore_merges = true;
  EXPECT_THAT(encode(make(v.spec), "abc"), ElementsAre(258));
  EXPECT_THAT(encode(make(v.spec), "abcd"), ElementsAre('a', 257, 'd'));
}

// 2 MB of one letter is one piece. A quadratic merge would take hours here.
TEST(Tokenizer, aLongRunTakesNotMuchLongerThanManyWords) {
  std::vector<std::pair<std::string, TokenType>> extra;
  std::vector<std::string> merges;
  for (size_t length = 1; length <= 32; length *= 2) {
    const std::string half(length, 'a');
    extra.emplace_back(half + half, TokenType::normal);
    merges.push_back(half + " " + half);
  }
  ByteVocabulary v(extra);
  v.spec.merges.assign(merges.begin(), merges.end());
  const Tokenizer tokenizer = make(v.spec);
  const auto ids = encode(tokenizer, std::string(size_t{2} << 20, 'a'));
  EXPECT_EQ(ids, std::vector<int32_t>((size_t{2} << 20) / 64, 256 + 5));
  for (const std::string& unit : {std::string(" "), std::string("\n"), std::string("\u4e2d")}) {
    std::string text;
    while (text.size() < (size_t{1} << 20))
      text += unit;
    EXPECT_EQ(encode(tokenizer, text).size(), text.size());
  }
}

TEST(Tokenizer, brokenVocabulariesAreRefusedInOneLine) {
  const auto message = [](const TokenizerSpec& spec) {
    const auto tokenizer = Tokenizer::create(spec);
    EXPECT_FALSE(tokenizer.ok());
    if (tokenizer) return std::string();
    EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
    return tokenizer.error().message;
  };
  EXPECT_THAT(message({}), HasSubstr("0 tokens"));
  {
    ByteVocabulary v;
    v.spec.pre = "no\nsuch";
    EXPECT_THAT(message(v.spec), HasSubstr("unknown pre-tokenizer 'no\\x0Asuch'"));
  }
  {
    ByteVocabulary v;
    v.spec.eos = 256;
    EXPECT_THAT(message(v.spec), HasSubstr("eos token id is 256"));
    v.spec.eos = -2;
    EXPECT_THAT(message(v.spec), HasSubstr("eos token id is -2"));
  }
  {
    ByteVocabulary v;
    v.spec.types.pop_back();
    EXPECT_THAT(message(v.spec), HasSubstr("255 token types for 256 tokens"));
  }
  {
    ByteVocabulary v;
    v.spec.types[3] = static_cast<TokenType>(9);
    EXPECT_THAT(message(v.spec), HasSubstr("token 3 has type 9"));
  }
  for (const std::string merge : {"ab", "", "a", "a b", "q\u4e2d a"}) {
    ByteVocabulary v;
    v.spec.merges = {merge};
    EXPECT_THAT(message(v.spec), HasSubstr("merge 0"));
  }
  {
    ByteVocabulary v;
    v.spec.split = std::vector<SplitRule>{{"(unclosed"}};
    EXPECT_THAT(message(v.spec), HasSubstr("missing closing parenthesis"));
  }
}

TEST(Tokenizer, aPatternThatBacktracksWithoutBoundIsAnError) {
  ByteVocabulary v;
  v.spec.split = std::vector<SplitRule>{{"(a+)+$"}};
  const auto ids = make(v.spec).encode(std::string(60, 'a') + "b");
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().message, HasSubstr("pre-tokenizer pattern"));
}

TEST(Pretokenizer, everyBehaviourKeepsOrDropsWhatItsNameSays) {
  const auto split = [](SplitBehaviour behaviour, bool invert = false) {
    const SplitRule rule{"-", behaviour, invert};
    const auto pretokenizer = Pretokenizer::compile({&rule, 1});
    std::vector<std::string_view> pieces;
    EXPECT_TRUE(pretokenizer->split("a--b-c-", pieces).ok());
    return pieces;
  };
  EXPECT_THAT(split(SplitBehaviour::isolated), ElementsAre("a", "-", "-", "b", "-", "c", "-"));
  EXPECT_THAT(split(SplitBehaviour::removed), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split(SplitBehaviour::removed, true), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(split(SplitBehaviour::merged_with_previous), ElementsAre("a-", "-", "b-", "c-"));
  EXPECT_THAT(split(SplitBehaviour::merged_with_next), ElementsAre("a", "-", "-b", "-c", "-"));
  EXPECT_THAT(split(SplitBehaviour::contiguous), ElementsAre("a", "--", "b", "-", "c", "-"));
}

TEST(Bpe, mergesLikeTheObviousAlgorithm) {
  // Random merge tables over 6 symbols; ids of merged pairs are new symbols.
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    MergeTable table;
    const int32_t n_symbols = 30;
    for (int32_t rank = 0; rank < 24; ++rank)
      table.add(static_cast<int32_t>(random() % 30), static_cast<int32_t>(random() % 30),
                {rank, 6 + rank % (n_symbols - 6)});
    std::vector<int32_t> symbols(random() % 80);
    for (int32_t& symbol : symbols)
      symbol = static_cast<int32_t>(random() % 6);

    std::vector<int32_t> expected = symbols;
    while (true) {
      const MergeTable::Merge* best = nullptr;
      size_t at = 0;
      for (size_t i = 0; i + 1 < expected.size(); ++i) {
        const auto* merge = table.find(expected[i], expected[i + 1]);
        if (merge && (!best || merge->rank < best->rank)) {
          best = merge;
          at = i;
        }
      }
      if (!best) break;
      expected[at] = best->merged;
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    std::vector<int32_t> found;
    bpe_merge(table, symbols, found);
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace kapitsa::text
