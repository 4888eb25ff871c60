#include "agents/agent.h"
#include "base/json.h"

#include <boost/json/object.hpp>
#include <gtest/gtest.h>

#include <algorithm>

namespace kapitsa::agents {
namespace {

const Endpoint kEndpoint{
    .address = "http://127.0.0.1:8421", .key = "", .model = "m \"1\"", .context = 32768};

std::string variable(const Launch& launch, const std::string& name) {
  for (const auto& [key, value] : launch.variables)
    if (key == name) return value;
  return "(none)";
}

bool has_argument(const Launch& launch, const std::string& argument) {
  return std::find(launch.arguments.begin(), launch.arguments.end(), argument) !=
         launch.arguments.end();
}

TEST(Agents, what_the_user_gives_comes_last) {
  for (const Agent& agent : all_agents()) {
    const Launch launch = agent.launch(kEndpoint, "/private", {"--yes", "two words"});
    ASSERT_GE(launch.arguments.size(), 2U) << agent.command;
    EXPECT_EQ(launch.arguments.back(), "two words");
    EXPECT_EQ(*(launch.arguments.end() - 2), "--yes");
    for (const auto& [path, content] : launch.files)
      EXPECT_TRUE(path.string().starts_with("/private/")) << agent.command;
  }
}

TEST(Agents, claude_has_every_tier_of_model_and_the_real_context) {
  const Launch launch = launch_claude(kEndpoint, "", {});
  EXPECT_EQ(variable(launch, "ANTHROPIC_BASE_URL"), "http://127.0.0.1:8421");
  EXPECT_EQ(variable(launch, "ANTHROPIC_API_KEY"), "");
  EXPECT_EQ(variable(launch, "ANTHROPIC_AUTH_TOKEN"), "kapitsa");
  for (const char* name : {"ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
                           "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
                           "CLAUDE_CODE_SUBAGENT_MODEL"})
    EXPECT_EQ(variable(launch, name), kEndpoint.model) << name;
  EXPECT_EQ(variable(launch, "CLAUDE_CODE_MAX_CONTEXT_TOKENS"), "32768");
  EXPECT_EQ(variable(launch, "CLAUDE_CODE_MAX_OUTPUT_TOKENS"), "8192");
}

TEST(Agents, codex_gets_toml) {
  Endpoint endpoint = kEndpoint;
  EXPECT_EQ(variable(launch_codex(endpoint, "", {}), "KAPITSA_API_KEY"), "(none)");
  endpoint.key = "secret";
  const Launch launch = launch_codex(endpoint, "", {});
  EXPECT_TRUE(has_argument(launch, R"(model="m \"1\"")"));
  EXPECT_TRUE(has_argument(launch, R"(model_providers.kapitsa.wire_api="responses")"));
  EXPECT_TRUE(has_argument(launch, "model_context_window=32768"));
  EXPECT_TRUE(has_argument(launch, R"(model_providers.kapitsa.env_key="KAPITSA_API_KEY")"));
  EXPECT_EQ(variable(launch, "KAPITSA_API_KEY"), "secret");
}

TEST(Agents, opencode_gets_limits_and_no_cloud_model) {
  const Launch launch = launch_opencode(kEndpoint, "", {});
  const auto config = parse_json(variable(launch, "OPENCODE_CONFIG_CONTENT"), "config");
  ASSERT_TRUE(config.ok());
  const auto& root = config->as_object();
  EXPECT_EQ(root.at("model").as_string(), "kapitsa/m \"1\"");
  EXPECT_EQ(root.at("agent").at("title").at("model").as_string(), "kapitsa/m \"1\"");
  const auto& model = root.at("provider").at("kapitsa").at("models").at("m \"1\"");
  EXPECT_EQ(model.at("limit").at("context").as_int64(), 32768);
  EXPECT_EQ(model.at("limit").at("output").as_int64(), 8192);
}

TEST(Agents, pi_reads_a_private_folder) {
  const Launch launch = launch_pi(kEndpoint, "/private", {});
  EXPECT_EQ(variable(launch, "PI_CODING_AGENT_DIR"), "/private");
  ASSERT_EQ(launch.files.size(), 1U);
  const auto models = parse_json(launch.files.front().second, "models.json");
  ASSERT_TRUE(models.ok());
  const auto& provider = models->as_object().at("providers").at("kapitsa");
  EXPECT_EQ(provider.at("baseUrl").as_string(), "http://127.0.0.1:8421/v1");
  EXPECT_EQ(provider.at("models").at(0).at("contextWindow").as_int64(), 32768);
}

TEST(Agents, a_dry_run_can_be_pasted_and_hides_the_key) {
  Launch launch;
  launch.files = {{"/private/f", "key: secret"}};
  launch.variables = {{"A", "it's"}, {"KEY", "secret"}, {"EMPTY", ""}};
  launch.arguments = {"-c", "a=\"b\"", "secret"};
  EXPECT_EQ(dry_run_text(launch, "/bin/agent", "secret"),
            "# /private/f:\nkey: ***\n"
            "A='it'\\''s' \\\nKEY='***' \\\nEMPTY='' \\\n"
            "/bin/agent -c 'a=\"b\"' '***'\n");
}

}  // namespace
}  // namespace kapitsa::agents
