// What a person types in a conversation: messages over several lines, and the commands that begin
// with a slash. Pure functions and state; no terminal.
#pragma once

#include "base/result.h"
#include "kapitsa/engine.h"

#include <string>

namespace kapitsa::cli {

// Joins lines to messages: a line that ends with a backslash goes on with the next one, and so does
// everything between two """.
class MessageBuilder {
public:
  // Whether message() is complete with this line (without its newline).
  bool add(std::string line);
  bool empty() const { return !quoted_ && !started_; }
  // The finished message; starts a new one.
  std::string take();

private:
  std::string text_;
  bool quoted_ = false;
  bool started_ = false;
};

enum class ChatAction : uint8_t { message, help, clear, system, set, stats, save, exit };

struct ChatInput {
  ChatAction action = ChatAction::message;
  std::string argument;  // the message, the system text, the setting's name, the file
  std::string value;     // of a setting
};

// The error of an unknown command or a missing argument says what is expected. A message that
// begins with a slash is written with two.
Result<ChatInput> parse_chat_input(const std::string& text);

struct ChatSettings {
  Sampling sampling;
  int32_t max_tokens = 0;
};

// /set NAME VALUE: temp, top_p, top_k, min_p, seed, max. "seed random" draws a seed for each
// answer.
Status apply_setting(const std::string& name, const std::string& value, ChatSettings& settings);
std::string settings_text(const ChatSettings& settings);

extern const char kChatHelp[];

}  // namespace kapitsa::cli
