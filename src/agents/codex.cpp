// Codex speaks OpenAI's responses and takes a provider of models from `-c` options, whose values
// are TOML.
#include "agents/agent.h"
#include "base/json_write.h"

#include <fmt/format.h>

namespace kapitsa::agents {

Launch launch_codex(const Endpoint& endpoint, const std::filesystem::path&,
                    const std::vector<std::string>& more) {
  Launch launch;
  const auto set = [&](const std::string& name, const std::string& toml) {
    launch.arguments.insert(launch.arguments.end(), {"-c", name + "=" + toml});
  };
  // A JSON string is a TOML string.
  set("model", json_string(endpoint.model));
  set("model_provider", "\"kapitsa\"");
  const std::string provider = "model_providers.kapitsa.";
  set(provider + "name", "\"Kapitsa\"");
  set(provider + "base_url", json_string(endpoint.address + "/v1"));
  set(provider + "wire_api", "\"responses\"");
  if (!endpoint.key.empty()) {
    set(provider + "env_key", "\"KAPITSA_API_KEY\"");
    launch.variables.emplace_back("KAPITSA_API_KEY", endpoint.key);
  }
  set(provider + "request_max_retries", "2");
  set(provider + "stream_max_retries", "2");
  set(provider + "stream_idle_timeout_ms", "3600000");
  set(provider + "supports_websockets", "false");
  set("model_context_window", std::to_string(endpoint.context));
  set("model_auto_compact_token_limit", std::to_string(int64_t{endpoint.context} * 9 / 10));
  set("web_search", "\"disabled\"");
  launch.arguments.insert(launch.arguments.end(), more.begin(), more.end());
  return launch;
}

}  // namespace kapitsa::agents
