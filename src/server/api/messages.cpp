#include "server/api/messages.h"

#include <algorithm>

namespace kapitsa::server::api {
namespace {

bool takes(const Engine& engine, const std::vector<ChatMessage>& messages,
           const std::string& must_show) {
  ChatPrompt prompt;
  prompt.messages = messages;
  const auto text = engine.render(prompt);
  return text.ok() && text->find(must_show) != std::string::npos;
}

ChatMessage message(const char* role, const char* content) {
  return {.role = role, .content = content};
}

void join(ChatMessage& first, const ChatMessage& second) {
  if (!first.content.empty() && !second.content.empty()) first.content += "\n\n";
  first.content += second.content;
}

}  // namespace

void probe_template(const Engine& engine, ModelFacts& facts) {
  if (!facts.info.has_chat_template) return;
  const ChatMessage system = message("system", "SYSTEM-PROBE");
  const ChatMessage user = message("user", "a");
  const ChatMessage assistant = message("assistant", "b");
  facts.system_role = takes(engine, {system, user}, "SYSTEM-PROBE");
  facts.system_later = takes(engine, {user, assistant, system, user}, "SYSTEM-PROBE");
  facts.same_role_twice = takes(engine, {user, message("user", "USER-PROBE")}, "USER-PROBE");
  ChatMessage call = message("assistant", "");
  call.tool_calls.push_back({.id = "call00000", .name = "f", .arguments = "{}"});
  ChatMessage result = message("tool", "TOOL-PROBE");
  result.tool_call_id = "call00000";
  result.name = "f";
  facts.tool_role = takes(engine, {user, call, result}, "TOOL-PROBE");
}

std::vector<ChatMessage> fitted(std::vector<ChatMessage> messages, const ModelFacts& facts) {
  std::vector<ChatMessage> result;
  for (ChatMessage& next : messages) {
    if (next.role == "developer") next.role = "system";
    const bool leading = result.empty();
    // Several at the beginning are one.
    if (next.role == "system" && result.size() == 1 && result.front().role == "system") {
      join(result.front(), next);
      continue;
    }
    if (next.role == "system" && !(leading ? facts.system_role : facts.system_later))
      next.role = "user";
    if (next.role == "tool" && !facts.tool_role) {
      next.role = "user";
      next.content =
          "Result of the tool" + (next.name.empty() ? "" : " " + next.name) + ":\n" + next.content;
    }
    if (!facts.same_role_twice && !leading && next.role != "tool" &&
        result.back().role == next.role) {
      join(result.back(), next);
      result.back().tool_calls.insert(result.back().tool_calls.end(), next.tool_calls.begin(),
                                      next.tool_calls.end());
      continue;
    }
    result.push_back(std::move(next));
  }
  return result;
}

}  // namespace kapitsa::server::api
