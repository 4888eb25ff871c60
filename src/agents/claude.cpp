// Claude Code speaks Anthropic's messages and reads everything from the environment. Every tier of
// model is ours, so that nothing falls back to the cloud; what changes the beginning of the prompt
// with each request, or needs the vendor's servers, is off.
#include "agents/agent.h"

namespace kapitsa::agents {

Launch launch_claude(const Endpoint& endpoint, const std::filesystem::path&,
                     const std::vector<std::string>& more) {
  Launch launch;
  const std::string context = std::to_string(endpoint.context);
  launch.variables = {{"ANTHROPIC_BASE_URL", endpoint.address},
                      {"ANTHROPIC_AUTH_TOKEN", endpoint.key_or_word()},
                      {"ANTHROPIC_API_KEY", ""}};
  for (const char* name :
       {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_FABLE_MODEL",
        "CLAUDE_CODE_SUBAGENT_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"})
    launch.variables.emplace_back(name, endpoint.model);
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"CLAUDE_CODE_MAX_CONTEXT_TOKENS", context},
      {"CLAUDE_CODE_AUTO_COMPACT_WINDOW", context},
      {"CLAUDE_CODE_MAX_OUTPUT_TOKENS", std::to_string(endpoint.max_output())},
      {"CLAUDE_CODE_ATTRIBUTION_HEADER", "0"},
      {"CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1"},
      {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"},
      {"CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY", "1"},
      {"CLAUDE_CODE_TOTAL_TOKENS_REMINDER", "off"},
      {"CLAUDE_CODE_USE_BEDROCK", "0"},
      {"CLAUDE_CODE_USE_VERTEX", "0"},
      {"CLAUDE_CODE_USE_FOUNDRY", "0"},
      {"CLAUDE_ENABLE_STREAM_WATCHDOG", "0"},
      {"CLAUDE_STREAM_IDLE_TIMEOUT_MS", "3600000"},
      {"API_TIMEOUT_MS", "3600000"},
      {"DISABLE_ERROR_REPORTING", "1"},
      {"DISABLE_TELEMETRY", "1"},
      {"ENABLE_TOOL_SEARCH", "false"}};
  launch.variables.insert(launch.variables.end(), settings.begin(), settings.end());
  launch.arguments = {"--model", endpoint.model, "--disallowedTools", "WebSearch"};
  launch.arguments.insert(launch.arguments.end(), more.begin(), more.end());
  return launch;
}

}  // namespace kapitsa::agents
