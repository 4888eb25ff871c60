// A server whose model is a script: it thinks when it is asked to, calls the first tool it is
// given, and says what it got back. Asked for FILE=/path, it writes the file with the tool that
// each coding agent has for that. For the clients in this folder. Prints its port, and ends with
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

// The path behind FILE= in what the user said; empty: none.
std::string wanted_file(const ChatPrompt& prompt) {
  for (const kapitsa::ChatMessage& message : prompt.messages) {
    const size_t at = message.content.find("FILE=");
    if (message.role != "user" || at == std::string::npos) continue;
    const size_t end = message.content.find_first_of(" \n\"'<`", at);
    return message.content.substr(at + 5, end == std::string::npos ? end : end - at - 5);
  }
  return "";
}

std::string call_text(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

// A call that writes "done" into the file; empty where no tool can.
std::string writing_call(const ChatPrompt& prompt, const std::string& path) {
  const std::string shell = "echo done > " + path;
  const std::string content = path + R"(", "content": "done\n"})";
  for (const kapitsa::Tool& tool : prompt.tools) {
    if (tool.name == "Write") return call_text("Write", R"({"file_path": ")" + content);
    if (tool.name == "write") {
      const bool camel = tool.parameters.find("filePath") != std::string::npos;
      return call_text("write", (camel ? R"({"filePath": ")" : R"({"path": ")") + content);
    }
    if (tool.name == "exec_command")
      return call_text("exec_command", R"({"cmd": ")" + shell + "\"}");
    if (tool.name == "shell_command")
      return call_text("shell_command", R"({"command": ")" + shell + "\"}");
    if (tool.name == "shell")
      return call_text("shell", R"({"command": ["bash", "-lc", ")" + shell + "\"]}");
  }
  return "";
}

Script write_file(const ChatPrompt& prompt, const std::string& path) {
  if (prompt.messages.back().role == "tool") return {.pieces = {"The file ", "is there."}};
  const std::string call = writing_call(prompt, path);
  if (!call.empty()) return {.pieces = {"I write it.\n", call.substr(0, 20), call.substr(20)}};
  std::string names = "No tool can write:";
  for (const kapitsa::Tool& tool : prompt.tools)
    names += " " + tool.name;
  return {.pieces = {names}};
}

Script answer(const Request& request) {
  const auto* prompt = std::get_if<ChatPrompt>(&request.prompt);
  if (prompt == nullptr) return {.pieces = {" and", " on"}};
  if (const std::string path = wanted_file(*prompt); !path.empty() && !prompt->tools.empty())
    return write_file(*prompt, path);
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
                       answer, "<think></think><tool_call>enable_thinking", 1 << 20),
                   "scripted");
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}
