#include "server/api/messages.h"

#include <gtest/gtest.h>

namespace kapitsa::server::api {
namespace {

std::string shown(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages)
    text += (text.empty() ? "" : " | ") + message.role + ": " + message.content;
  return text;
}

const std::vector<ChatMessage> kConversation = {
    {.role = "developer", .content = "a"}, {.role = "system", .content = "b"},
    {.role = "user", .content = "c"},      {.role = "assistant", .content = "d"},
    {.role = "system", .content = "e"},    {.role = "user", .content = "f"}};

TEST(FittedMessages, a_template_that_takes_all_gets_all_in_place) {
  EXPECT_EQ(shown(fitted(kConversation, {})),
            "system: a\n\nb | user: c | assistant: d | system: e | user: f");
}

TEST(FittedMessages, a_later_system_message_becomes_user_text_where_it_stands) {
  ModelFacts facts;
  facts.system_later = false;
  EXPECT_EQ(shown(fitted(kConversation, facts)),
            "system: a\n\nb | user: c | assistant: d | user: e | user: f");
  facts.same_role_twice = false;
  EXPECT_EQ(shown(fitted(kConversation, facts)),
            "system: a\n\nb | user: c | assistant: d | user: e\n\nf");
}

TEST(FittedMessages, a_template_without_a_system_role_gets_it_from_the_user) {
  ModelFacts facts;
  facts.system_role = facts.system_later = facts.same_role_twice = false;
  EXPECT_EQ(
      shown(fitted({{.role = "system", .content = "a"}, {.role = "user", .content = "b"}}, facts)),
      "user: a\n\nb");
}

TEST(FittedMessages, results_of_tools_stay_apart_or_become_user_text) {
  ChatMessage call{.role = "assistant"};
  call.tool_calls = {{.id = "1", .name = "f"}, {.id = "2", .name = "f"}};
  const std::vector<ChatMessage> messages = {
      {.role = "user", .content = "a"},
      call,
      {.role = "tool", .content = "x", .tool_call_id = "1", .name = "f"},
      {.role = "tool", .content = "y", .tool_call_id = "2", .name = "f"}};
  ModelFacts facts;
  facts.same_role_twice = false;
  EXPECT_EQ(shown(fitted(messages, facts)), "user: a | assistant:  | tool: x | tool: y");
  facts.tool_role = false;
  EXPECT_EQ(shown(fitted(messages, facts)),
            "user: a | assistant:  | user: Result of the tool f:\nx\n\nResult of the tool f:\ny");
}

}  // namespace
}  // namespace kapitsa::server::api
