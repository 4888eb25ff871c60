#include "text/family.h"

#include <algorithm>

namespace kapitsa::text {
namespace {

using Names = std::string_view;

constexpr Names kQwenEnds[] = {"<|im_end|>", "<|endoftext|>"};
constexpr Names kMuseEnds[] = {"<|end_of_text|>", "<|eot|>"};
constexpr Names kGemmaEnds[] = {"<turn|>"};
constexpr Names kLladaEnds[] = {"<|endoftext|>", "<|role_end|>"};
constexpr Names kNemotronEnds[] = {"<|im_end|>", "</s>"};

constexpr Names kQwen35[] = {"qwen35", "qwen35_moe", "qwen4_exp"};
constexpr Names kQwen3[] = {"qwen3", "qwen3_moe", "qwen3_next", "sdar_moe"};
constexpr Names kNemotron[] = {"nemotron_h"};
constexpr Names kMuse[] = {"muse_glimmer"};
constexpr Names kLaguna[] = {"laguna"};
constexpr Names kLlada[] = {"llada2_moe"};
constexpr Names kDiffusionGemma[] = {"diffusion_gemma"};

constexpr Names kQwen38Efforts[] = {"low", "medium", "xhigh"};

constexpr Family kFamilies[] = {
    {.name = "qwen3.8",
     .architectures = kQwen35,
     .template_mark = "reasoning_effort",
     .reasoning = ReasoningStart::prompt,
     .reasoning_open = "<think>",
     .reasoning_close = "</think>",
     .tool_calls = ToolCallFormat::function_tags,
     .stop_tokens = kQwenEnds,
     .thinking_argument = "enable_thinking",
     .effort_argument = "reasoning_effort",
     .efforts = kQwen38Efforts,
     .effort_default = "xhigh",
     .keep_reasoning_argument = "preserve_thinking"},
    {.name = "qwen3.5",
     .architectures = kQwen35,
     .template_mark = "",
     .reasoning = ReasoningStart::prompt,
     .reasoning_open = "<think>",
     .reasoning_close = "</think>",
     .tool_calls = ToolCallFormat::function_tags,
     .stop_tokens = kQwenEnds,
     .thinking_argument = "enable_thinking"},
    {.name = "qwen3-coder",
     .architectures = kQwen3,
     .template_mark = "<function=",
     .tool_calls = ToolCallFormat::function_tags,
     .stop_tokens = kQwenEnds},
    {.name = "qwen3",
     .architectures = kQwen3,
     .template_mark = "",
     .reasoning = ReasoningStart::model,
     .reasoning_open = "<think>",
     .reasoning_close = "</think>",
     .tool_calls = ToolCallFormat::json_in_tags,
     .stop_tokens = kQwenEnds,
     .thinking_argument = "enable_thinking"},
    {.name = "nemotron3",
     .architectures = kNemotron,
     .template_mark = "",
     .reasoning = ReasoningStart::prompt,
     .reasoning_open = "<think>",
     .reasoning_close = "</think>",
     .tool_calls = ToolCallFormat::function_tags,
     .stop_tokens = kNemotronEnds,
     .thinking_argument = "enable_thinking"},
    {.name = "muse",
     .architectures = kMuse,
     .template_mark = "",
     .reasoning = ReasoningStart::model,
     .reasoning_open = " to=self<|message|>",
     .reasoning_close = "<|eom|>",
     .tool_calls = ToolCallFormat::atem,
     .stop_tokens = kMuseEnds},
    {.name = "laguna",
     .architectures = kLaguna,
     .template_mark = "",
     .reasoning = ReasoningStart::model,
     .reasoning_open = "<think>",
     .reasoning_close = "</think>",
     .tool_calls = ToolCallFormat::key_value_tags},
    {.name = "llada2", .architectures = kLlada, .template_mark = "", .stop_tokens = kLladaEnds},
    {.name = "gemma4",
     .architectures = kDiffusionGemma,
     .template_mark = "",
     .reasoning = ReasoningStart::model,
     .reasoning_open = "<|channel>thought\n",
     .reasoning_close = "<channel|>",
     .tool_calls = ToolCallFormat::brackets,
     .stop_tokens = kGemmaEnds,
     .thinking_argument = "enable_thinking"},
    // Of any architecture: only the turns are known.
    {.name = "chatml", .template_mark = "<|im_start|>", .stop_tokens = kQwenEnds},
};

}  // namespace

std::string_view to_string(ToolCallFormat format) {
  switch (format) {
  case ToolCallFormat::none: return "none";
  case ToolCallFormat::json_in_tags: return "json_in_tags";
  case ToolCallFormat::function_tags: return "function_tags";
  case ToolCallFormat::key_value_tags: return "key_value_tags";
  case ToolCallFormat::atem: return "atem";
  case ToolCallFormat::brackets: return "brackets";
  }
  return "none";
}

std::string_view to_string(ReasoningStart start) {
  switch (start) {
  case ReasoningStart::none: return "none";
  case ReasoningStart::prompt: return "prompt";
  case ReasoningStart::model: return "model";
  }
  return "none";
}

std::span<const Family> families() {
  return kFamilies;
}

const Family* find_family(std::string_view architecture, std::string_view chat_template) {
  for (const Family& family : kFamilies) {
    const bool fits =
        family.architectures.empty() ||
        std::ranges::find(family.architectures, architecture) != family.architectures.end();
    if (fits && chat_template.find(family.template_mark) != std::string_view::npos) return &family;
  }
  return nullptr;
}

}  // namespace kapitsa::text
