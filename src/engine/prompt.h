// From what a request says to the tokens that the model reads.
#pragma once

#include "engine/loader.h"

#include <span>
#include <string>
#include <variant>
#include <vector>

namespace kapitsa::engine {

Result<std::vector<int32_t>> prompt_tokens(const Loaded& loaded, const ChatPrompt& prompt);
Result<std::vector<int32_t>> prompt_tokens(const Loaded& loaded, const TextPrompt& prompt);
Result<std::vector<int32_t>> prompt_tokens(const Loaded& loaded, const TokenPrompt& prompt);
Result<std::vector<int32_t>>
prompt_tokens(const Loaded& loaded,
              const std::variant<ChatPrompt, TextPrompt, TokenPrompt>& prompt);

// The text of a chat prompt after the template.
Result<std::string> render(const Loaded& loaded, const ChatPrompt& prompt);

// Every id must be in the vocabulary.
Status check_tokens(const Loaded& loaded, std::span<const int32_t> tokens);

}  // namespace kapitsa::engine
