// What a person types in a conversation.
#include "cli/chat_input.h"

#include <gtest/gtest.h>

namespace kapitsa::cli {
namespace {

// The messages that lines make; an unfinished one is left out.
std::vector<std::string> messages_of(const std::vector<std::string>& lines) {
  std::vector<std::string> messages;
  MessageBuilder builder;
  for (const std::string& line : lines) {
    if (builder.add(line)) messages.push_back(builder.take());
  }
  return messages;
}

using Messages = std::vector<std::string>;

TEST(MessageBuilder, a_line_is_a_message) {
  EXPECT_EQ(messages_of({"one", "", " two \r"}), (Messages{"one", "", "two"}));
}

TEST(MessageBuilder, a_backslash_at_the_end_goes_on) {
  EXPECT_EQ(messages_of({"one\\", "two\\", "three", "four"}),
            (Messages{"one\ntwo\nthree", "four"}));
}

TEST(MessageBuilder, quotes_hold_every_line_between_them) {
  EXPECT_EQ(messages_of({"\"\"\"one", "", "two\\", "three\"\"\"", "x"}),
            (Messages{"one\n\ntwo\\\nthree", "x"}));
  EXPECT_EQ(messages_of({"\"\"\"all in one\"\"\""}), (Messages{"all in one"}));
  EXPECT_EQ(messages_of({"\"\"\"", "a", "\"\"\""}), (Messages{"a"}));
}

TEST(MessageBuilder, knows_when_nothing_was_typed) {
  MessageBuilder builder;
  EXPECT_TRUE(builder.empty());
  EXPECT_FALSE(builder.add("a\\"));
  EXPECT_FALSE(builder.empty());
  EXPECT_EQ(builder.take(), "a");
  EXPECT_TRUE(builder.empty());
}

TEST(ParseChatInput, commands_and_messages) {
  const auto message = parse_chat_input("hello /clear");
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->action, ChatAction::message);
  EXPECT_EQ(message->argument, "hello /clear");
  EXPECT_EQ(parse_chat_input("//etc")->argument, "/etc");
  EXPECT_EQ(parse_chat_input("/clear")->action, ChatAction::clear);
  EXPECT_EQ(parse_chat_input("/quit")->action, ChatAction::exit);
  EXPECT_EQ(parse_chat_input("/system Be brief.\nAlways.")->argument, "Be brief.\nAlways.");
  const auto set = parse_chat_input("/set temp  0.5");
  EXPECT_EQ(set->argument, "temp");
  EXPECT_EQ(set->value, "0.5");
}

TEST(ParseChatInput, errors_say_what_is_expected) {
  EXPECT_EQ(parse_chat_input("/set temp").error().message, "expected /set NAME VALUE");
  EXPECT_EQ(parse_chat_input("/save ").error().message, "expected /save FILE");
  EXPECT_NE(parse_chat_input("/nothing").error().message.find("'/nothing'"), std::string::npos);
  EXPECT_FALSE(parse_chat_input("/").ok());
}

TEST(ApplySetting, sets_and_refuses) {
  ChatSettings settings;
  EXPECT_TRUE(apply_setting("temp", "0.25", settings));
  EXPECT_TRUE(apply_setting("seed", "18446744073709551615", settings));
  EXPECT_TRUE(apply_setting("max", "12", settings));
  EXPECT_EQ(settings.sampling.temperature, 0.25F);
  EXPECT_EQ(settings.sampling.seed, UINT64_MAX);
  EXPECT_EQ(settings.max_tokens, 12);
  EXPECT_TRUE(apply_setting("seed", "random", settings));
  EXPECT_FALSE(settings.sampling.seed.has_value());
  for (const auto& [name, value] : {std::pair{"temp", "hot"},
                                    {"temp", "-1"},
                                    {"temp", "nan"},
                                    {"top_p", "1.5"},
                                    {"seed", "-1"},
                                    {"max", "1.5"},
                                    {"colour", "1"}}) {
    EXPECT_FALSE(apply_setting(name, value, settings).ok()) << name << " " << value;
  }
  EXPECT_EQ(settings.sampling.temperature, 0.25F);
}

}  // namespace
}  // namespace kapitsa::cli
