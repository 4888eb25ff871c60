// A server whose model is a script: it thinks when it is asked to, calls the first tool it is
// given, and says what it got back. For the clients in this folder. Prints its port, and ends with
// its standard input.
#include "server/server.h"
#include "support/scripted_engine.h"

#include <cstdio>
#include <iostream>
#include <string>

namespace {

using kapitsa::ChatPrompt;
using kapitsa::FinishReason;
using kapitsa::Request;
using kapitsa::test::Script;

Script answer(const Request& request) {
  const auto* prompt = std::get_if<ChatPrompt>(&request.prompt);
  if (prompt == nullptr) return {.pieces = {" and", " on"}};
  const kapitsa::ChatMessage& last = prompt->messages.back();
  Script script;
  if (last.content.find("think") != std::string::npos)
    script.pieces = {"<think>\nLet me", " see.\n</think>\n\n"};
  if (last.role == "tool") {
    script.pieces.insert(script.pieces.end(), {"The tool ", "said: ", last.content});
  } else if (!prompt->tools.empty()) {
    const std::string name = prompt->tools.front().name;
    script.pieces.insert(script.pieces.end(), {"I look.\n<tool_", "call>\n{\"name\": \"", name,
                                               "\", \"arguments\": {\"city\": ", "\"Par",
                                               "is \\u00e9\"}}\n</tool_call>"});
    if (last.content.find("twice") != std::string::npos)
      script.pieces.push_back("\n<tool_call>\n{\"name\": \"" + name +
                              "\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>");
  } else {
    script.pieces.insert(script.pieces.end(), {"Hello", " \xC3\xA9", " \xF0\x9F\x98\x80", "."});
  }
  if (request.max_tokens > 0 && script.pieces.size() > static_cast<size_t>(request.max_tokens)) {
    script.pieces.resize(static_cast<size_t>(request.max_tokens));
    script.reason = FinishReason::length;
  }
  return script;
}

}  // namespace

int main() {
  const auto server = kapitsa::server::Server::start({});
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  (*server)->serve(std::make_unique<kapitsa::test::ScriptedEngine>(
                       answer, "<think></think><tool_call>enable_thinking"),
                   "scripted");
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}
