// What this build can run and how the models of each family talk: for lists of models, and for
// checking what a user writes about one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kapitsa {

// All texts; empty where a family has no such thing.
struct FamilyInfo {
  std::string_view name;
  std::string_view reasoning;  // who opens it: "none", "prompt" (the chat template), "model"
  std::string_view reasoning_open;
  std::string_view reasoning_close;
  std::string_view tool_calls;  // "function_tags"
  std::vector<std::string_view> stop_tokens;
  std::string_view thinking_argument;  // of the chat template
  std::string_view effort_argument;
  std::vector<std::string_view> efforts;  // least first
  std::string_view effort_default;
  std::string_view keep_reasoning_argument;
};

std::vector<FamilyInfo> families();

// Whether this build runs GGUF files whose general.architecture, or folders whose model_type, is
// this.
bool runs_architecture(std::string_view name);

}  // namespace kapitsa
