// How each coding agent is told to use a Kapitsa server: by arguments, environment and files of a
// private folder alone; what belongs to the user is never touched. Pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace kapitsa::agents {

struct Endpoint {
  std::string address = {};  // "http://127.0.0.1:8421"
  std::string key = {};      // empty: the server asks for none
  std::string model = {};
  int32_t context = 0;  // tokens of prompt and answer
  bool reasoning = false;

  // Tokens that an answer may take: a share of the context that leaves room for the conversation.
  int32_t max_output() const;
  // Agents insist on sending a key.
  std::string key_or_word() const { return key.empty() ? "kapitsa" : key; }
};

struct Launch {
  std::vector<std::string> arguments;  // without the program
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::pair<std::filesystem::path, std::string>> files;  // below the private folder
};

struct Agent {
  const char* command;  // of kapitsa, and the program's name
  const char* title;
  const char* install;  // one line that installs it
  const char* page;
  // `folder` may be used for files of ours; `more` is what the user gives to the agent.
  Launch (*launch)(const Endpoint& endpoint, const std::filesystem::path& folder,
                   const std::vector<std::string>& more);
};

Launch launch_claude(const Endpoint& endpoint, const std::filesystem::path& folder,
                     const std::vector<std::string>& more);
Launch launch_codex(const Endpoint& endpoint, const std::filesystem::path& folder,
                    const std::vector<std::string>& more);
Launch launch_opencode(const Endpoint& endpoint, const std::filesystem::path& folder,
                       const std::vector<std::string>& more);
Launch launch_pi(const Endpoint& endpoint, const std::filesystem::path& folder,
                 const std::vector<std::string>& more);

const std::vector<Agent>& all_agents();

// What would run, as a person would type it, the key masked; files come first.
std::string dry_run_text(const Launch& launch, const std::string& program, const std::string& key);

}  // namespace kapitsa::agents
