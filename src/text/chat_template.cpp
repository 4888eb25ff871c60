// The variables of a chat template, and the split of its output by origin. Knows no model.
#include "text/chat_template.h"

#include "text/jinja/format.h"

#include <algorithm>

namespace kapitsa::text {

namespace {

using jinja::Str;
using jinja::Value;

// Templates build control tokens from roles, e.g. "<|" + role + "|>". A role outside this list is
// user text: a request could name any control token.
bool is_known_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {"system", "user",     "assistant", "tool",
                                         "model",  "function", "developer", "ipython"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

Value user(const std::string& text) {
  return Value::user_text(text);
}

Value content_parts(const std::vector<ChatMessage::Part>& parts) {
  std::vector<Value> items;
  for (const ChatMessage::Part& part : parts) {
    Value item = Value::dict();
    item.as_dict()->set("type", user(part.type));
    if (part.type == "text") item.as_dict()->set("text", user(part.text));
    for (const auto& [name, value] : part.fields)
      item.as_dict()->set(std::string_view(name), value);
    items.push_back(std::move(item));
  }
  return Value::list(std::move(items));
}

Value tool_calls(const std::vector<ChatMessage::ToolCall>& calls) {
  std::vector<Value> items;
  for (const ChatMessage::ToolCall& call : calls) {
    Value function = Value::dict();
    function.as_dict()->set("name", user(call.name));
    Result<Value> arguments = jinja::parse_json(call.arguments_json, Str::Origin::user);
    const bool is_mapping = arguments.ok() && arguments->is_dict();
    function.as_dict()->set("arguments", is_mapping ? *arguments : user(call.arguments_json));
    Value item = Value::dict();
    if (!call.id.empty()) item.as_dict()->set("id", user(call.id));
    item.as_dict()->set("type", "function");
    item.as_dict()->set("function", std::move(function));
    items.push_back(std::move(item));
  }
  return Value::list(std::move(items));
}

// Depth is bounded by the JSON parser.
Value without_nulls(const Value& value) {
  if (value.is_list()) {
    std::vector<Value> items;
    for (const Value& item : value.as_list()->items)
      items.push_back(without_nulls(item));
    return Value::list(std::move(items));
  }
  if (!value.is_dict()) return value;
  Value copy = Value::dict();
  for (const auto& [key, entry] : value.as_dict()->entries())
    if (!entry.is_none()) copy.as_dict()->set(key, without_nulls(entry));
  return copy;
}

std::vector<Segment> split_by_origin(const Str& text) {
  std::vector<Segment> segments;
  text.for_each_run([&](std::string_view run, Str::Origin origin) {
    segments.push_back({std::string(run), origin == Str::Origin::trusted});
  });
  return segments;
}

}  // namespace

Value to_value(const ChatMessage& message) {
  Value value = Value::dict();
  jinja::Dict& dict = *value.as_dict();
  dict.set("role", is_known_role(message.role) ? Value(std::string_view(message.role))
                                               : user(message.role));
  if (!message.parts.empty())
    dict.set("content", content_parts(message.parts));
  else
    dict.set("content", message.content ? user(*message.content) : Value(jinja::None{}));
  if (message.reasoning_content) dict.set("reasoning_content", user(*message.reasoning_content));
  if (!message.tool_calls.empty()) dict.set("tool_calls", tool_calls(message.tool_calls));
  if (!message.tool_call_id.empty()) dict.set("tool_call_id", user(message.tool_call_id));
  if (!message.name.empty()) dict.set("name", user(message.name));
  for (const auto& [name, extra] : message.extra)
    dict.set(std::string_view(name), extra);
  return value;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  ChatTemplate result;
  KAPITSA_ASSIGN(result.template_, jinja::Template::parse(source));
  return result;
}

Result<std::vector<Segment>> ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                                  const ChatTemplateOptions& options) const {
  std::vector<Value> values;
  for (const ChatMessage& message : messages) {
    values.push_back(to_value(message));
  }
  return render(Value::list(std::move(values)), options);
}

Result<std::vector<Segment>> ChatTemplate::render(const Value& messages,
                                                  const ChatTemplateOptions& options) const {
  jinja::RenderInput input;
  input.limits = options.limits;
  input.now = options.now;
  const auto set = [&input](const std::string& name, Value value) {
    for (auto& [variable, old] : input.variables) {
      if (variable != name) continue;
      old = std::move(value);
      return;
    }
    input.variables.emplace_back(name, std::move(value));
  };
  set("messages", messages);
  set("add_generation_prompt", options.add_generation_prompt);
  set("bos_token", std::string_view(options.bos_token));
  set("eos_token", std::string_view(options.eos_token));
  set("tools", jinja::None{});
  if (!options.tools_json.empty()) {
    auto tools = jinja::parse_json(options.tools_json, Str::Origin::user);
    if (!tools) return Error{ErrorCode::invalid_argument, "tools: " + tools.error().message};
    set("tools", without_nulls(*tools));
  }
  for (const auto& [name, value] : options.variables)
    set(name, value);
  auto text = template_.render(input);
  if (!text) return Error{text.error().code, "chat " + text.error().message};
  return split_by_origin(*text);
}

}  // namespace kapitsa::text
