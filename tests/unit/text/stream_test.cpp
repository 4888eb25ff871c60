// What clients see while text streams: UTF-8 that is whole at every cut, control tokens that stay
// hidden, and stop strings that never leak.
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace kapitsa::text {
namespace {

// What Python's bytes.decode("utf-8", "replace") gives; computed there.
struct Decoding {
  std::string bytes;
  std::string text;
};
const std::vector<Decoding> kDecodings = {
    {"plain", "plain"},
    {"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x9A\x80", "\u00e9\u4e2d\U0001f680"},
    {"\xFF", "\ufffd"},
    {"a\xFF\xFE z", "a\ufffd\ufffd z"},
    {"\xC3", "\ufffd"},
    {"\xC3(", "\ufffd("},
    {"\xE4\xB8", "\ufffd"},
    {"\xE4\xB8x", "\ufffdx"},
    {"\xF0\x9F\x9A", "\ufffd"},
    {"\xF0\x9F\x9A\xF0\x9F\x9A\x80", "\ufffd\U0001f680"},
    {"\xE4\xB8\xC3\xA9", "\ufffd\u00e9"},
    {"\xC0\xAF", "\ufffd\ufffd"},
    {"\xE0\x80\xAF", "\ufffd\ufffd\ufffd"},
    {"\xED\xA0\x80", "\ufffd\ufffd\ufffd"},
    {"\xF4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
    {"\xF5\x80", "\ufffd\ufffd"},
    {"\x80\xBF", "\ufffd\ufffd"},
};

TEST(Utf8Stream, isValidAtEveryCutAndEqualToDecodingAtOnce) {
  for (const auto& [bytes, text] : kDecodings) {
    for (size_t first = 0; first <= bytes.size(); ++first) {
      for (size_t second = first; second <= bytes.size(); ++second) {
        Utf8Stream stream;
        std::string out;
        for (const auto& part :
             {bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)}) {
          stream.push(part, out);
          EXPECT_TRUE(utf8_valid(out));
          EXPECT_LE(stream.n_held(), 3u);
        }
        stream.flush(out);
        EXPECT_EQ(out, text);
      }
    }
  }
}

TEST(Utf8Stream, holdsBackNothingThatIsWhole) {
  Utf8Stream stream;
  std::string out;
  stream.push("\xC3\xA9\xE4\xB8", out);
  EXPECT_EQ(out, "\u00e9");
  stream.push("\xAD", out);
  EXPECT_EQ(out, "\u00e9\u4e2d");
  EXPECT_EQ(stream.n_held(), 0u);
}

TEST(Utf8, decodingAgreesWithAppending) {
  for (char32_t c = 0; c < 0x110000; c += 37) {
    std::string text;
    utf8_append(text, c);
    const Utf8Step step = utf8_decode(text, 0);
    EXPECT_TRUE(step.valid);
    EXPECT_EQ(step.length, text.size());
    EXPECT_EQ(step.codepoint, c >= 0xD800 && c < 0xE000 ? kReplacement : c);
  }
}

TEST(Detokenizer, showsControlTokensOnlyOnRequest) {
  TokenizerSpec spec;
  spec.tokens = {"a", "<|im_end|>", "<think>", "\u00c3", "\u00a9", "\u0120b"};
  spec.types = {TokenType::normal, TokenType::control, TokenType::user_defined,
                TokenType::normal, TokenType::normal,  TokenType::normal};
  spec.pre = "gpt-2";
  const auto tokenizer = Tokenizer::create(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<int32_t> ids{0, 1, 2, 3, 4, 5, 77, -1};
  EXPECT_EQ(detokenize(*tokenizer, ids), "a<think>\u00e9 b");
  EXPECT_EQ(detokenize(*tokenizer, ids, {.show_control = true}), "a<|im_end|><think>\u00e9 b");
  Detokenizer stream(*tokenizer);
  std::string out;
  stream.push(3, out);
  EXPECT_EQ(out, "");
  stream.push(4, out);
  EXPECT_EQ(out, "\u00e9");
  stream.push(3, out);
  stream.flush(out);
  EXPECT_EQ(out, "\u00e9\ufffd");
}

// First stop string to end; of those, the longest. By searching every prefix.
std::pair<std::string, int> stop_at_once(const std::string& text,
                                         const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool ends = !stops[i].empty() && text.substr(0, end).ends_with(stops[i]);
      if (ends && (best < 0 || stops[i].size() > stops[static_cast<size_t>(best)].size()))
        best = static_cast<int>(i);
    }
    if (best >= 0) return {text.substr(0, end - stops[static_cast<size_t>(best)].size()), best};
  }
  return {text, -1};
}

TEST(StopMatcher, givesTheSameAtEveryCut) {
  const std::vector<std::vector<std::string>> stop_lists = {
      {"</s>"},         {"\n\n", "User:"}, {"aab"}, {"aaaa", "ab"}, {"abc", "b"}, {"", "x"},
      {"\u00e9\u4e2d"}, {"abab", "babb"},  {},      {"a", "aa"},
  };
  const std::vector<std::string> texts = {
      "hello</s>more",
      "a</a</s",
      "line\n\nUser: x",
      "aaab",
      "aaaaab",
      "xabc",
      "\n",
      "caf\u00e9\u4e2d!",
      "ababababb",
      "User",
      "aUser:",
      "",
      "b",
      "aaaaaaa",
  };
  for (const auto& stops : stop_lists) {
    for (const std::string& text : texts) {
      const auto [expected, index] = stop_at_once(text, stops);
      for (size_t first = 0; first <= text.size(); ++first) {
        for (size_t second = first; second <= text.size(); ++second) {
          StopMatcher matcher(stops);
          std::string out;
          for (const auto& part :
               {text.substr(0, first), text.substr(first, second - first), text.substr(second)})
            matcher.push(part, out);
          EXPECT_EQ(matcher.stop_index(), index);
          if (!matcher.stopped()) matcher.flush(out);
          EXPECT_EQ(out, expected) << text;
        }
      }
    }
  }
}

TEST(StopMatcher, holdsBackOnlyWhatMayBecomeAStopString) {
  const std::vector<std::string> stops{"</s>", "\n\nUser"};
  StopMatcher matcher(stops);
  std::string out;
  matcher.push("hello <", out);
  EXPECT_EQ(out, "hello ");
  matcher.push("b>\n", out);
  EXPECT_EQ(out, "hello <b>");
  matcher.push("\n\nUs", out);
  EXPECT_EQ(out, "hello <b>\n");
  matcher.push("es", out);
  EXPECT_EQ(out, "hello <b>\n\n\nUses");
  EXPECT_TRUE(matcher.push("x</s>y", out));
  EXPECT_EQ(out, "hello <b>\n\n\nUsesx");
  EXPECT_TRUE(matcher.push("more", out));
  matcher.flush(out);
  EXPECT_EQ(out, "hello <b>\n\n\nUsesx");
}

TEST(StopMatcher, agreesWithSearchOnRandomText) {
  std::mt19937 random(5);
  const auto word = [&](size_t n) {
    std::string s;
    for (size_t i = 0; i < n; ++i)
      s += "ab"[random() % 2];
    return s;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> stops{word(1 + random() % 6), word(3 + random() % 6)};
    const std::string text = word(random() % 30);
    StopMatcher matcher(stops);
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const size_t n = 1 + random() % 4;
      matcher.push(text.substr(pos, n), out);
      pos += n;
    }
    matcher.flush(out);
    EXPECT_EQ(std::pair(out, matcher.stop_index()), stop_at_once(text, stops));
  }
}

}  // namespace
}  // namespace kapitsa::text
