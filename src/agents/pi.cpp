// pi speaks OpenAI's chat completions and reads providers from models.json in its folder, which is
// a private one of ours.
#include "agents/agent.h"
#include "base/json_write.h"

namespace kapitsa::agents {

Launch launch_pi(const Endpoint& endpoint, const std::filesystem::path& folder,
                 const std::vector<std::string>& more) {
  JsonWriter json(2);
  json.begin_object().key("providers").begin_object().key("kapitsa").begin_object();
  json.member("baseUrl", endpoint.address + "/v1").member("api", "openai-completions");
  json.member("apiKey", endpoint.key_or_word());
  json.key("compat").begin_object().member("supportsDeveloperRole", false);
  json.member("supportsStore", false).member("supportsReasoningEffort", true);
  json.member("supportsUsageInStreaming", true).member("maxTokensField", "max_tokens");
  json.member("thinkingFormat", "qwen-chat-template").member("supportsStrictMode", false);
  json.member("supportsMidConvoSystemMessages", true).end_object();
  json.key("models").begin_array().begin_object();
  json.member("id", endpoint.model).member("name", endpoint.model);
  json.member("reasoning", endpoint.reasoning);
  json.key("input").begin_array().value("text").end_array();
  json.member("contextWindow", endpoint.context).member("maxTokens", endpoint.max_output());
  json.key("cost").begin_object().member("input", 0).member("output", 0);
  json.member("cacheRead", 0).member("cacheWrite", 0).end_object();
  json.end_object().end_array().end_object().end_object();
  Launch launch;
  launch.files = {{folder / "models.json", json.end_object().take() + "\n"}};
  launch.variables = {{"PI_CODING_AGENT_DIR", folder.string()},
                      {"PI_SKIP_VERSION_CHECK", "1"},
                      {"PI_TELEMETRY", "0"}};
  launch.arguments = {"--provider", "kapitsa", "--model", endpoint.model};
  launch.arguments.insert(launch.arguments.end(), more.begin(), more.end());
  return launch;
}

}  // namespace kapitsa::agents
