// A conversation in the terminal: keeps the messages, runs the slash commands, answers in turn.
#pragma once

#include "cli/answer.h"
#include "cli/chat_input.h"
#include "kapitsa/engine.h"

#include <filesystem>
#include <string>

namespace kapitsa::cli {

struct ChatOptions {
  std::string system;
  ChatSettings settings;
  std::vector<std::string> stop;
  AnswerStyle style;
  std::filesystem::path history;  // of the lines typed; "" keeps none
};

// Returns the exit code, when the person leaves.
int chat(Engine& engine, const ChatOptions& options);

}  // namespace kapitsa::cli
