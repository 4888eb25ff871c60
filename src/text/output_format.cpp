#include "text/output_format.h"

namespace kapitsa::text {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

ToolStyle tool_style(std::string_view source) {
  if (has(source, "<|channel|>") && has(source, "<|message|>")) return ToolStyle::harmony;
  if (has(source, "<|tool_call>")) return ToolStyle::gemma;
  if (has(source, "[TOOL_CALLS]")) return ToolStyle::mistral;
  if (has(source, "<TOOLCALL>")) return ToolStyle::nemotron_json;
  if (has(source, "<arg_key>")) return ToolStyle::glm_xml;
  if (has(source, "<function=")) return ToolStyle::qwen_xml;
  if (has(source, "<tool_call>")) return ToolStyle::hermes_json;
  if (has(source, "<|python_tag|>") || (has(source, "ipython") && has(source, "parameters")))
    return ToolStyle::llama_json;
  return ToolStyle::none;
}

}  // namespace

const char* to_string(ToolStyle style) {
  switch (style) {
  case ToolStyle::none: return "none";
  case ToolStyle::hermes_json: return "hermes_json";
  case ToolStyle::qwen_xml: return "qwen_xml";
  case ToolStyle::llama_json: return "llama_json";
  case ToolStyle::mistral: return "mistral";
  case ToolStyle::nemotron_json: return "nemotron_json";
  case ToolStyle::gemma: return "gemma";
  case ToolStyle::harmony: return "harmony";
  case ToolStyle::glm_xml: return "glm_xml";
  }
  return "none";
}

OutputFormat output_format(std::string_view source) {
  OutputFormat format;
  format.tools = tool_style(source);
  if (format.tools == ToolStyle::harmony) {
    format.reasoning_begin = "<|channel|>analysis<|message|>";
    format.reasoning_end = "<|end|>";
  } else if (has(source, "<|channel>")) {
    format.reasoning_begin = "<|channel>thought";
    format.reasoning_end = "<channel|>";
  } else if (has(source, "[THINK]")) {
    format.reasoning_begin = "[THINK]";
    format.reasoning_end = "[/THINK]";
  } else if (has(source, "<think>") || has(source, "</think>")) {
    format.reasoning_begin = "<think>";
    format.reasoning_end = "</think>";
  }
  format.control_in_reasoning =
      format.reasoning_begin.starts_with("<|") || format.reasoning_begin.starts_with("[");
  format.control_in_tools =
      format.tools == ToolStyle::harmony || format.tools == ToolStyle::gemma ||
      format.tools == ToolStyle::mistral || format.tools == ToolStyle::llama_json;
  return format;
}

}  // namespace kapitsa::text
