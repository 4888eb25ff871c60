#include "engine/prompt.h"

#include "text/jinja/format.h"

#include <fmt/format.h>

namespace kapitsa::engine {
namespace {

using text::Segment;

text::ChatMessage template_message(const ChatMessage& message) {
  text::ChatMessage result;
  result.role = message.role;
  if (!message.content.empty() || message.tool_calls.empty()) result.content = message.content;
  if (!message.reasoning.empty()) result.reasoning_content = message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    result.tool_calls.push_back({call.id, call.name, call.arguments});
  }
  result.tool_call_id = message.tool_call_id;
  result.name = message.name;
  return result;
}

// The tools array as the OpenAI API writes it, which is what templates expect.
Result<std::string> tools_json(const std::vector<Tool>& tools) {
  using text::jinja::Str;
  std::string json;
  for (const Tool& tool : tools) {
    const auto quoted = [](const std::string& plain) {
      return text::jinja::to_json(text::jinja::Value(Str(plain, Str::Origin::user)), {}, 1U << 24);
    };
    KAPITSA_ASSIGN(const Str name, quoted(tool.name));
    KAPITSA_ASSIGN(const Str description, quoted(tool.description));
    json += fmt::format(R"({}{{"type": "function", "function": {{"name": {}, "description": {}, )"
                        R"("parameters": {}}}}})",
                        json.empty() ? "[" : ", ", name.text(), description.text(),
                        tool.parameters.empty() ? "{}" : tool.parameters);
  }
  return json.empty() ? json : json + "]";
}

Result<std::vector<Segment>> render_segments(const Loaded& loaded, const ChatPrompt& prompt) {
  if (!loaded.chat_template) {
    return Error{ErrorCode::unsupported,
                 loaded.file->path().string() + ": the model has no chat template"};
  }
  if (prompt.messages.empty()) {
    return Error{ErrorCode::invalid_argument, "messages: expected at least one, found none"};
  }
  const text::Tokenizer& tokenizer = loaded.vocabulary->tokenizer;
  text::ChatTemplateOptions options;
  options.add_generation_prompt = prompt.add_generation_prompt;
  options.bos_token = tokenizer.token_bytes(tokenizer.bos());
  options.eos_token = tokenizer.token_bytes(tokenizer.eos());
  KAPITSA_ASSIGN(options.tools_json, tools_json(prompt.tools));
  for (const auto& [name, json] : prompt.template_arguments) {
    auto value = text::jinja::parse_json(json, text::jinja::Str::Origin::user);
    if (!value) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("template argument '{}': expected JSON: {}", name, value.error().message)};
    }
    options.variables.emplace_back(name, std::move(*value));
  }
  std::vector<text::ChatMessage> messages;
  messages.reserve(prompt.messages.size());
  for (const ChatMessage& message : prompt.messages)
    messages.push_back(template_message(message));
  KAPITSA_ASSIGN(std::vector<Segment> segments, loaded.chat_template->render(messages, options));
  if (!prompt.answer_begin.empty()) segments.push_back({prompt.answer_begin, false});
  return segments;
}

// A template that writes the bos token itself must not get a second one.
bool begins_with_bos(const Loaded& loaded, const std::vector<Segment>& segments) {
  const text::Tokenizer& tokenizer = loaded.vocabulary->tokenizer;
  const std::string_view bos = tokenizer.token_bytes(tokenizer.bos());
  return !bos.empty() && !segments.empty() && segments.front().trusted &&
         segments.front().text.starts_with(bos);
}

Result<std::vector<int32_t>> not_empty(Result<std::vector<int32_t>> tokens) {
  if (tokens && tokens->empty()) {
    return Error{ErrorCode::invalid_argument, "prompt: expected at least one token, found none"};
  }
  return tokens;
}

}  // namespace

Result<std::vector<int32_t>> prompt_tokens(const Loaded& loaded, const ChatPrompt& prompt) {
  KAPITSA_ASSIGN(const std::vector<Segment> segments, render_segments(loaded, prompt));
  return not_empty(loaded.vocabulary->tokenizer.encode(
      segments, {.add_special = !begins_with_bos(loaded, segments), .parse_special = true}));
}

Result<std::vector<int32_t>> prompt_tokens(const Loaded& loaded, const TextPrompt& prompt) {
  return not_empty(loaded.vocabulary->tokenizer.encode(
      prompt.text, prompt.parse_special,
      {.add_special = true, .parse_special = prompt.parse_special}));
}

Result<std::vector<int32_t>> prompt_tokens(const Loaded& loaded, const TokenPrompt& prompt) {
  KAPITSA_TRY(check_tokens(loaded, prompt.tokens));
  return not_empty(prompt.tokens);
}

Result<std::vector<int32_t>>
prompt_tokens(const Loaded& loaded,
              const std::variant<ChatPrompt, TextPrompt, TokenPrompt>& prompt) {
  return std::visit([&](const auto& concrete) { return prompt_tokens(loaded, concrete); }, prompt);
}

Result<std::string> render(const Loaded& loaded, const ChatPrompt& prompt) {
  KAPITSA_ASSIGN(const std::vector<Segment> segments, render_segments(loaded, prompt));
  std::string rendered;
  for (const Segment& segment : segments)
    rendered += segment.text;
  return rendered;
}

Status check_tokens(const Loaded& loaded, std::span<const int32_t> tokens) {
  const int32_t n_vocab = loaded.info.n_vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= n_vocab) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("token {}: expected an id from 0 to {}, found {}", i, n_vocab - 1,
                               tokens[i])};
    }
  }
  return {};
}

}  // namespace kapitsa::engine
