// The request parameters that several dialects have, under the names that clients use.
#pragma once

#include "server/api/call.h"
#include "server/api/fields.h"

namespace kapitsa::server::api {

// temperature, top_p, top_k, min_p, penalties, logit_bias, seed.
Sampling read_sampling(const Fields& fields, double highest_temperature = 2.0);
// A string or a list of strings under `name`.
std::vector<std::string> read_stops(const Fields& fields, std::string_view name);

// How much a client wants the model to think, in the words of its template.
struct Thinking {
  std::optional<bool> enabled;
  std::string effort;  // "low", "medium", "high"; empty: not said
};
void apply_thinking(const Thinking& thinking, const ModelFacts& facts, ChatPrompt& prompt);
// "none" to "max": whether to think, and how much.
Thinking thinking_of_effort(const Fields& fields, std::string_view name, const std::string& effort);

// Adds a tool whose schema is `parameters` (null: takes nothing). A name twice is an error.
void add_tool(const Fields& fields, Call& call, ChatPrompt& prompt, Tool tool,
              const boost::json::object* parameters);

// Where the answer begins inside of reasoning is decided later, from the prompt's text.
Call chat_call(const ModelFacts& facts, ChatPrompt prompt, const Sampling& sampling,
               const std::vector<std::string>& stops, int32_t max_tokens, int n);

constexpr const char* kNoGrammar =
    "structured output is not supported by this version; ask for it in the prompt, or leave it out";
constexpr const char* kNoForcedCall =
    "a call cannot be forced by this version; use \"auto\" or \"none\"";
constexpr const char* kNoImages = "this model takes text only";

}  // namespace kapitsa::server::api
