// Which family a model is taken for.
#include "text/family.h"

#include <gtest/gtest.h>

#include <set>

namespace kapitsa::text {
namespace {

std::string_view family(std::string_view architecture, std::string_view chat_template) {
  const Family* found = find_family(architecture, chat_template);
  return found == nullptr ? "" : found->name;
}

TEST(Families, are_told_by_architecture_and_template) {
  EXPECT_EQ(family("qwen35_moe", "{{ enable_thinking }}"), "qwen3.5");
  EXPECT_EQ(family("qwen35", "{%- if reasoning_effort is defined %}"), "qwen3.8");
  EXPECT_EQ(family("qwen3_moe", "<tool_call>{\"name\""), "qwen3");
  EXPECT_EQ(family("qwen3_moe", "<tool_call>\n<function=x>"), "qwen3-coder");
  EXPECT_EQ(family("nemotron_h", ""), "nemotron3");
  EXPECT_EQ(family("llama", "<|im_start|>"), "chatml");
  EXPECT_EQ(family("llama", "[INST]"), "");
}

TEST(Families, say_what_belongs_together) {
  std::set<std::string_view> names;
  for (const Family& f : families()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_EQ(f.reasoning == ReasoningStart::none, f.reasoning_close.empty()) << f.name;
    EXPECT_EQ(f.reasoning_open.empty(), f.reasoning_close.empty()) << f.name;
    EXPECT_EQ(f.effort_argument.empty(), f.efforts.empty()) << f.name;
  }
}

}  // namespace
}  // namespace kapitsa::text
