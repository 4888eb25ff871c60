// The pre-tokenizers that GGUF files name: how some of them cut a text. Whole vocabularies are
// compared with other implementations in tests/peers.
#include "text/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kapitsa::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces(std::string_view name, std::string_view text) {
  const auto pretokenizer = Pretokenizer::compile(pretokenizer_rules(name));
  EXPECT_TRUE(pretokenizer.ok()) << name << ": " << pretokenizer.error().message;
  std::vector<std::string_view> views;
  EXPECT_TRUE(pretokenizer->split(text, views).ok());
  return {views.begin(), views.end()};
}

TEST(PretokenizeNames, digits_are_cut_as_each_family_does) {
  EXPECT_THAT(pieces("gpt-2", "a 12345"), ElementsAre("a", " 12345"));
  EXPECT_THAT(pieces("command-r", "a 123"), ElementsAre("a", " ", "1", "2", "3"));
  EXPECT_THAT(pieces("llama-bpe", "a 12345"), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(pieces("deepseek-v3", "a 12345"), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(pieces("falcon", "a12345"), ElementsAre("a", "123", "45"));
}

TEST(PretokenizeNames, punctuation_and_line_breaks_are_cut_as_each_family_does) {
  EXPECT_THAT(pieces("falcon", "f(x), y"), ElementsAre("f", "(", "x", "),", " y"));
  EXPECT_THAT(pieces("deepseek-coder", "f(x) \n"), ElementsAre("f", "(", "x", ")", " ", "\n"));
  // Its rule for marks has a range that takes in the letters of ASCII, so that words fall apart.
  EXPECT_THAT(pieces("deepseek-llm", "a, \u00e9bc\u00e9\r\n"),
              ElementsAre("a", ",", " \u00e9", "bc", "\u00e9", "\r", "\n"));
  EXPECT_THAT(pieces("deepseek-v3", "a.b\n\n"), ElementsAre("a", ".b", "\n\n"));
  EXPECT_THAT(pieces("laguna", "a;\nb"), ElementsAre("a", ";", "\n", "b"));
  EXPECT_THAT(pieces("seed-coder", "a;\nb"), ElementsAre("a", ";", "\n", "b"));
  EXPECT_THAT(pieces("qwen2", "a;\nb"), ElementsAre("a", ";\n", "b"));
}

TEST(PretokenizeNames, unknown_names_have_no_rules) {
  EXPECT_TRUE(pretokenizer_rules("").empty());
  EXPECT_TRUE(pretokenizer_rules("gpt-9").empty());
  EXPECT_FALSE(implies_ignore_merges("gpt-2"));
  EXPECT_TRUE(implies_ignore_merges("glm4"));
}

}  // namespace
}  // namespace kapitsa::text
