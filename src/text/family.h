// How the models of one family talk: the tags around their reasoning, the form of their tool calls,
// the tokens that end an answer, and the arguments of their chat template that steer thinking. Data
// only; the template itself comes with the model's file.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kapitsa::text {

enum class ToolCallFormat : uint8_t {
  none,
  // <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  json_in_tags,
  // <tool_call><function=NAME><parameter=ARG>VALUE</parameter></function></tool_call>, with line
  // breaks between: strings as they are, other values as JSON.
  function_tags,
  // <tool_call>NAME<arg_key>ARG</arg_key><arg_value>VALUE</arg_value></tool_call>
  key_value_tags,
  // A segment to=NAME of <atem:invoke name=NAME><atem:parameter name=ARG>VALUE...
  atem,
  // <|tool_call>call:NAME{ARG:VALUE,...}<tool_call|>
  brackets,
};
std::string_view to_string(ToolCallFormat format);

// Who writes the tag that opens the reasoning.
enum class ReasoningStart : uint8_t {
  none,    // the model does not reason apart from its answer
  prompt,  // the chat template: the answer starts inside, and only the closing tag comes
  model,   // the model, where it reasons at all
};
std::string_view to_string(ReasoningStart start);

struct Family {
  std::string_view name;  // "qwen3.5"
  // Architectures as ModelInfo names them (none: any), and a text that the chat templates contain.
  std::span<const std::string_view> architectures;
  std::string_view template_mark;

  ReasoningStart reasoning = ReasoningStart::none;
  std::string_view reasoning_open;
  std::string_view reasoning_close;
  ToolCallFormat tool_calls = ToolCallFormat::none;
  std::span<const std::string_view> stop_tokens;  // beside those that the file names

  std::string_view thinking_argument;         // of the template: true or false
  std::string_view effort_argument;           // of the template: one of effort_values
  std::span<const std::string_view> efforts;  // least first; the template refuses others
  std::string_view effort_default;            // what the template takes when it is not given
  std::string_view keep_reasoning_argument;   // of the template: reasoning of earlier answers
};

// The more special ones first.
std::span<const Family> families();

// The family of a model with this architecture and chat template; nullptr where none fits.
const Family* find_family(std::string_view architecture, std::string_view chat_template);

}  // namespace kapitsa::text
