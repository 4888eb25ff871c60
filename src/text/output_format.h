// How a family of models writes reasoning and tool calls in its answers, recognised by its chat
// template. Data only; text/output_parser.h reads answers by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kapitsa::text {

enum class ToolStyle : uint8_t {
  none,
  hermes_json,  // <tool_call>{"name": N, "arguments": {..}}</tool_call>: Qwen2.5, Qwen3, Hermes
  qwen_xml,     // <tool_call><function=N><parameter=P>V</parameter></function></tool_call>
  llama_json,   // the whole answer is {"name": N, "parameters": {..}}, after <|python_tag|> or not
  mistral,      // [TOOL_CALLS][{"name": N, "arguments": {..}}] or [TOOL_CALLS]N[ARGS]{..}
  nemotron_json,  // <TOOLCALL>[{"name": N, "arguments": {..}}]</TOOLCALL>
  gemma,          // <|tool_call>call:N{key:value}<tool_call|>, strings in <|"|>
  harmony,        // <|channel|>commentary to=functions.N <|message|>{..}<|call|>
  glm_xml,        // <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
};

const char* to_string(ToolStyle style);

struct OutputFormat {
  ToolStyle tools = ToolStyle::none;
  std::string reasoning_begin;  // "<think>"; empty: the model does not reason aloud
  std::string reasoning_end;    // "</think>"
  // Their marks are control tokens, which the text of an answer has only when it is asked to.
  bool control_in_tools = false;
  bool control_in_reasoning = false;
};

OutputFormat output_format(std::string_view chat_template);

}  // namespace kapitsa::text
