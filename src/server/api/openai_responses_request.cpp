// The request half of https://platform.openai.com/docs/api-reference/responses. Kinds of items and
// tools that this server does not know are left out, because agents add new ones with each version.
#include "server/api/messages.h"
#include "server/api/openai_common.h"
#include "server/api/openai_responses.h"
#include "server/api/parameters.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::server::api {
namespace {

namespace json = boost::json;

std::string reasoning_text(const Fields& item) {
  std::string text;
  for (const char* name : {"content", "summary"}) {
    const json::array* parts = item.list(name);
    for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
      const json::object* part = item.element(*parts, name, i);
      if (part == nullptr) break;
      text += Fields(*part, item.path(name, i), item.error()).text("text").value_or("");
    }
    if (!text.empty()) break;
  }
  if (text.empty()) text = item.text("encrypted_content").value_or("");
  return text;
}

// Items to messages: reasoning and calls belong to the assistant's message beside them.
class Conversation {
public:
  void add(const Fields& item) {
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      add_message(item);
    } else if (type == "function_call" || type == "custom_tool_call") {
      add_call(item, type == "custom_tool_call");
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      add_output(item);
    } else if (type == "reasoning") {
      assistant().reasoning += reasoning_text(item);
    } else if (type == "item_reference") {
      item.fail(
          "type",
          fmt::format("{}: responses are not stored; send the item itself", item.path("type")),
          "unsupported_parameter");
    }
  }

  void add_text(const char* role, std::string text) {
    messages_.push_back({.role = role, .content = std::move(text)});
  }

  std::vector<ChatMessage> take() {
    // Reasoning alone, without an answer, is nothing that a template can show.
    std::erase_if(messages_, [](const ChatMessage& message) {
      return message.role == "assistant" && message.content.empty() && message.tool_calls.empty();
    });
    return std::move(messages_);
  }

private:
  ChatMessage& assistant() {
    if (messages_.empty() || messages_.back().role != "assistant")
      messages_.push_back({.role = "assistant"});
    return messages_.back();
  }

  void add_message(const Fields& item) {
    const std::string role = item.required_text("role");
    if (item.ok() && role != "user" && role != "assistant" && role != "system" &&
        role != "developer")
      return item.fail("role", fmt::format("{}: expected user, assistant, system or developer, "
                                           "found '{}'",
                                           item.path("role"), role));
    std::string text = content_text(item, "content");
    if (role == "assistant" && !messages_.empty() && messages_.back().role == "assistant" &&
        messages_.back().content.empty() && messages_.back().tool_calls.empty()) {
      messages_.back().content = std::move(text);
      return;
    }
    messages_.push_back({.role = role, .content = std::move(text)});
  }

  void add_call(const Fields& item, bool custom) {
    ToolCall call{.id = item.required_text("call_id"), .name = item.required_text("name")};
    const json::value* arguments = item.any(custom ? "input" : "arguments");
    if (custom) {
      call.arguments = custom_arguments(item.text("input").value_or(""));
    } else if (arguments != nullptr) {
      call.arguments = arguments->is_string() ? std::string(view(arguments->get_string()))
                                              : json_text(*arguments);
    }
    if (call.arguments.empty()) call.arguments = "{}";
    names_[call.id] = call.name;
    assistant().tool_calls.push_back(std::move(call));
  }

  void add_output(const Fields& item) {
    ChatMessage result{.role = "tool"};
    result.tool_call_id = item.required_text("call_id");
    result.content = content_text(item, "output");
    result.name = names_[result.tool_call_id];
    messages_.push_back(std::move(result));
  }

  std::vector<ChatMessage> messages_;
  std::map<std::string, std::string> names_;  // call id -> tool
};

void read_tool(const Fields& item, const std::string& name_space, Call& call, ChatPrompt& prompt,
               ResponseReplyOptions& reply) {
  const std::string type = item.required_text("type");
  if (type == "namespace") {
    const json::array* tools = item.list("tools");
    for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
      const json::object* tool = item.element(*tools, "tools", i);
      if (tool == nullptr) return;
      read_tool(Fields(*tool, item.path("tools", i), item.error()), item.text("name").value_or(""),
                call, prompt, reply);
    }
    return;
  }
  if (type != "function" && type != "custom") return;
  Tool tool{.name = item.required_text("name"),
            .description = item.text("description").value_or("")};
  if (!name_space.empty()) reply.namespaces[tool.name] = name_space;
  if (type == "function")
    return add_tool(item, call, prompt, std::move(tool), item.object("parameters"));
  reply.custom_tools.insert(tool.name);
  // The model learns the grammar of the text from words, because nothing enforces it.
  if (const json::object* format = item.object("format"))
    if (const json::value* definition = format->if_contains("definition"))
      if (const auto* text = definition->if_string())
        tool.description += "\nThe input follows this grammar:\n" + std::string(view(*text));
  ApiError none;
  const auto schema = parse_body(kCustomToolSchema, none);
  add_tool(item, call, prompt, std::move(tool), &*schema);
}

void read_tools(const Fields& body, Call& call, ChatPrompt& prompt, ResponseReplyOptions& reply) {
  const json::array* tools = body.list("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const json::object* tool = body.element(*tools, "tools", i);
    if (tool == nullptr) break;
    read_tool(Fields(*tool, body.path("tools", i), body.error()), "", call, prompt, reply);
  }
  if (const json::value* choice = body.any("tool_choice")) {
    const auto* text = choice->if_string();
    if (text != nullptr && *text == "none") {
      prompt.tools.clear();
    } else if (text == nullptr || *text != "auto") {
      body.fail("tool_choice", fmt::format("tool_choice: {}", kNoForcedCall),
                "unsupported_parameter");
    }
  }
  call.parse_tools = !prompt.tools.empty();
  call.one_call_only = !body.flag("parallel_tool_calls").value_or(true);
  if (const auto most = body.integer("max_tool_calls", 1, INT32_MAX); most && *most == 1)
    call.one_call_only = true;
}

void refuse_unsupported(const Fields& body) {
  if (body.has("previous_response_id"))
    body.fail("previous_response_id",
              "previous_response_id: responses are not stored; send the whole conversation",
              "previous_response_not_found");
  body.refuse("conversation", "conversations are not stored");
  body.refuse("background", "not supported");
  body.refuse("prompt", "stored prompts are not supported");
  if (const json::object* text = body.object("text")) {
    const Fields fields(*text, "text", body.error());
    if (const json::object* format = fields.object("format")) {
      const Fields inner(*format, "text.format", body.error());
      if (inner.required_text("type") != "text")
        inner.fail("type", fmt::format("text.format: {}", kNoGrammar), "unsupported_parameter");
    }
  }
  if (const auto top = body.integer("top_logprobs", 0, 20); top && *top > 0)
    body.fail("top_logprobs", "top_logprobs: not supported here; use chat completions",
              "unsupported_parameter");
}

void read_echo(const Fields& body, ResponseReplyOptions& reply) {
  constexpr std::pair<const char*, const char*> kEchoed[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"temperature", "1"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", "\"auto\""},
      {"tools", "[]"},
      {"top_p", "1"}};
  for (const auto& [name, standard] : kEchoed) {
    const json::value* value = body.any(name);
    reply.echo.emplace_back(name, value == nullptr ? standard : json_text(*value));
  }
}

}  // namespace

Call parse_response(const json::object& object, const ModelFacts& facts,
                    ResponseReplyOptions& reply, ApiError& error) {
  const Fields body(object, "", error);
  Conversation conversation;
  if (const auto instructions = body.text("instructions"); instructions && !instructions->empty())
    conversation.add_text("system", *instructions);
  const json::value* input = body.any("input");
  if (input != nullptr && input->is_string()) {
    conversation.add_text("user", body.text("input").value_or(""));
  } else if (const json::array* items = body.list("input")) {
    for (size_t i = 0; i < items->size(); ++i) {
      const json::object* item = body.element(*items, "input", i);
      if (item == nullptr) break;
      conversation.add(Fields(*item, body.path("input", i), error));
    }
  } else if (body.ok()) {
    body.fail("input", "input: expected a string or an array, found none",
              "missing_required_parameter");
  }
  Call parsed;
  ChatPrompt prompt;
  read_tools(body, parsed, prompt, reply);
  refuse_unsupported(body);
  if (const json::object* reasoning = body.object("reasoning")) {
    const Fields fields(*reasoning, "reasoning", error);
    if (const auto effort = fields.text("effort"))
      apply_thinking(thinking_of_effort(fields, "effort", *effort), facts, prompt);
  }
  if (const json::array* include = body.list("include"))
    for (const json::value& item : *include)
      if (item == "reasoning.encrypted_content") reply.encrypted_reasoning = true;
  prompt.messages = fitted(conversation.take(), facts);
  if (body.ok() && prompt.messages.empty())
    body.fail("input", "input: expected at least one message, found none");
  read_echo(body, reply);

  Call call = chat_call(
      facts, std::move(prompt), read_sampling(body), {},
      static_cast<int32_t>(body.integer("max_output_tokens", 1, INT32_MAX).value_or(0)), 1);
  call.parse_tools = parsed.parse_tools;
  call.one_call_only = parsed.one_call_only;
  call.parameter_types = std::move(parsed.parameter_types);
  call.model = body.text("model").value_or(facts.name);
  call.stream = body.flag("stream").value_or(false);
  reply.model = call.model;
  return call;
}

}  // namespace kapitsa::server::api
