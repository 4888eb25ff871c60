// opencode speaks OpenAI's chat completions and takes JSON from OPENCODE_CONFIG_CONTENT, which it
// merges over the user's own. Each of its agents gets the model, so that none goes to the cloud.
#include "agents/agent.h"
#include "base/json_write.h"

namespace kapitsa::agents {

Launch launch_opencode(const Endpoint& endpoint, const std::filesystem::path&,
                       const std::vector<std::string>& more) {
  const std::string model = "kapitsa/" + endpoint.model;
  JsonWriter json;
  json.begin_object().member("model", model).member("small_model", model);
  json.key("agent").begin_object();
  for (const char* agent : {"build", "plan", "general", "explore", "title", "compaction"})
    json.key(agent).begin_object().member("model", model).end_object();
  json.end_object();
  json.key("provider").begin_object().key("kapitsa").begin_object();
  json.member("npm", "@ai-sdk/openai-compatible").member("name", "Kapitsa");
  json.key("options").begin_object().member("baseURL", endpoint.address + "/v1");
  json.member("apiKey", endpoint.key_or_word()).member("timeout", false).end_object();
  json.key("models").begin_object().key(endpoint.model).begin_object();
  json.member("name", endpoint.model).member("tool_call", true);
  json.member("reasoning", endpoint.reasoning).member("attachment", false);
  json.key("modalities").begin_object();
  json.key("input").begin_array().value("text").end_array();
  json.key("output").begin_array().value("text").end_array().end_object();
  json.key("limit").begin_object().member("context", endpoint.context);
  json.member("output", endpoint.max_output()).end_object();
  json.end_object().end_object().end_object().end_object();
  // Pruning rewrites the conversation, and the server would read all of it again.
  json.key("compaction").begin_object().member("auto", true).member("prune", false).end_object();
  Launch launch;
  launch.variables = {{"OPENCODE_CONFIG_CONTENT", json.end_object().take()},
                      {"OPENCODE_DISABLE_MODELS_FETCH", "1"},
                      {"OPENCODE_DISABLE_AUTOUPDATE", "1"}};
  launch.arguments = more;
  return launch;
}

}  // namespace kapitsa::agents
