#include "agents/agent.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::agents {
namespace {

// Safe for a POSIX shell.
std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return text;
  std::string result = "'";
  for (const char c : text)
    result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string masked(std::string text, const std::string& key) {
  for (size_t at = 0; !key.empty() && (at = text.find(key, at)) != text.npos; at += 3)
    text.replace(at, key.size(), "***");
  return text;
}

}  // namespace

int32_t Endpoint::max_output() const {
  return std::max(std::min(32000, context / 4), 1);
}

const std::vector<Agent>& all_agents() {
  static const std::vector<Agent> agents = {
      {"opencode", "opencode", "npm install -g opencode-ai", "https://opencode.ai",
       launch_opencode},
      {"claude", "Claude Code", "npm install -g @anthropic-ai/claude-code",
       "https://claude.com/claude-code", launch_claude},
      {"codex", "Codex", "npm install -g @openai/codex", "https://developers.openai.com/codex",
       launch_codex},
      {"pi", "pi", "npm install -g @earendil-works/pi-coding-agent", "https://pi.dev", launch_pi}};
  return agents;
}

std::string dry_run_text(const Launch& launch, const std::string& program, const std::string& key) {
  std::string text;
  for (const auto& [path, content] : launch.files)
    text += fmt::format("# {}:\n{}\n", path.string(), masked(content, key));
  for (const auto& [name, value] : launch.variables)
    text += fmt::format("{}={} \\\n", name, quoted(masked(value, key)));
  text += quoted(program);
  for (const std::string& argument : launch.arguments)
    text += " " + quoted(masked(argument, key));
  return text + "\n";
}

}  // namespace kapitsa::agents
