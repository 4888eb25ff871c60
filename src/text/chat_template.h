// Messages to prompt: a model's own Jinja chat template, applied to a conversation. The result is a
// list of segments, so that what users, tools and models wrote can be told from the template's own
// text and never becomes a control token. Thread-safe after parse().
#pragma once

#include "base/result.h"
#include "text/jinja/template.h"
#include "text/tokenizer.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa::text {

// One message as templates see it, in the layout of the OpenAI chat API. Anything an API knows that
// is not here goes into `extra`.
struct ChatMessage {
  // One part of content: {"type": type, ...}. For text, `text` is the value under "text"; for other
  // types, `fields` holds what the template may read, e.g. {"image_url", ...}.
  struct Part {
    std::string type = "text";
    std::string text;
    std::vector<std::pair<std::string, jinja::Value>> fields;
  };
  // {"id", "type": "function", "function": {"name", "arguments"}}. Arguments that are a JSON object
  // are given to the template as a mapping; anything else as the string that it is.
  struct ToolCall {
    std::string id;
    std::string name;
    std::string arguments_json;
  };

  std::string role;                    // trusted if it is one of the known roles
  std::optional<std::string> content;  // null for a message of tool calls only
  std::vector<Part> parts;             // used instead of `content` when not empty
  std::optional<std::string> reasoning_content;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;
  std::string name;
  std::vector<std::pair<std::string, jinja::Value>> extra;
};

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  // The tools array of the request as JSON; empty: the template sees `tools` as none. Nulls inside
  // schemas are dropped, because many templates cannot bear them.
  std::string tools_json;
  std::string bos_token;  // trusted: written by the template as control tokens
  std::string eos_token;
  // E.g. {"enable_thinking", false}; these win over all the names above.
  std::vector<std::pair<std::string, jinja::Value>> variables;
  std::optional<std::tm> now;  // for strftime_now
  jinja::RenderLimits limits;
};

class ChatTemplate {
public:
  static Result<ChatTemplate> parse(std::string_view source);

  // Fails with the template's own message when it refuses the conversation.
  Result<std::vector<Segment>> render(const std::vector<ChatMessage>& messages,
                                      const ChatTemplateOptions& options) const;
  // For a caller that has messages as values already. Strings in them should be user text.
  Result<std::vector<Segment>> render(const jinja::Value& messages,
                                      const ChatTemplateOptions& options) const;

private:
  jinja::Template template_;
};

// A message as a template value.
jinja::Value to_value(const ChatMessage& message);

}  // namespace kapitsa::text
