// The request half of https://docs.anthropic.com/en/api/messages. Members that agents add with each
// new version are ignored; blocks that a text model cannot read are refused where they stand.
#include "server/api/anthropic_messages.h"
#include "server/api/messages.h"
#include "server/api/openai_common.h"
#include "server/api/parameters.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::server::api {
namespace {

namespace json = boost::json;

// The first line that Claude Code puts above its system prompt; it changes with each request.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// The text of blocks that only carry text: system, tool results, documents.
std::string text_of_block(const Fields& block);

std::string text_of_blocks(const Fields& fields, std::string_view name,
                           std::string_view separator) {
  const json::value* value = fields.any(name);
  if (value == nullptr || value->is_string()) return fields.text(name).value_or("");
  const json::array* blocks = fields.list(name);
  std::string text;
  for (size_t i = 0; blocks != nullptr && i < blocks->size(); ++i) {
    const json::object* object = fields.element(*blocks, name, i);
    if (object == nullptr) break;
    const std::string next = text_of_block(Fields(*object, fields.path(name, i), fields.error()));
    if (next.empty() || next.starts_with(kBillingHeader)) continue;
    if (!text.empty()) text += separator;
    text += next;
  }
  return text;
}

std::string document_text(const Fields& block) {
  const json::object* source = block.object("source");
  if (source == nullptr) return "";
  const Fields fields(*source, block.path("source"), block.error());
  const std::string type = fields.text("type").value_or("");
  if (type == "text") return fields.required_text("data");
  if (type == "content") return text_of_blocks(fields, "content", "\n");
  fields.fail("type", fmt::format("{}: expected text, found '{}': {}", fields.path("type"), type,
                                  kNoImages));
  return "";
}

std::string text_of_block(const Fields& block) {
  const std::string type = block.text("type").value_or("text");
  if (type == "text") return block.text("text").value_or("");
  if (type == "document") return document_text(block);
  if (type == "search_result") return text_of_blocks(block, "content", "\n");
  if (type == "tool_reference") return block.text("tool_name").value_or("");
  if (type == "image")
    block.fail("type",
               fmt::format("{}: expected text, found an image: {}", block.path("type"), kNoImages));
  return "";
}

// Splits the blocks of one message: results of tools become messages of their own.
class MessageReader {
public:
  MessageReader(std::string role, std::vector<ChatMessage>& out) : out_(out) {
    message_.role = std::move(role);
  }

  void add(const Fields& block) {
    const std::string type = block.required_text("type");
    if (type == "tool_result") {
      add_result(block);
    } else if (type == "tool_use" || type == "server_tool_use") {
      ToolCall call{.id = block.text("id").value_or(""), .name = block.required_text("name")};
      const json::value* input = block.any("input");
      call.arguments = input == nullptr     ? "{}"
                       : input->is_string() ? std::string(view(input->get_string()))
                                            : json_text(*input);
      message_.tool_calls.push_back(std::move(call));
    } else if (type == "thinking") {
      message_.reasoning += block.text("thinking").value_or("");
    } else {
      const std::string text = text_of_block(block);
      if (text.empty()) return;
      if (!message_.content.empty()) message_.content += "\n";
      message_.content += text;
    }
  }

  void end() {
    if (!message_.content.empty() || !message_.tool_calls.empty() || !message_.reasoning.empty())
      out_.push_back(std::move(message_));
  }

  ChatMessage& message() { return message_; }

private:
  void add_result(const Fields& block) {
    ChatMessage result{.role = "tool"};
    result.tool_call_id = block.required_text("tool_use_id");
    result.content = text_of_blocks(block, "content", "\n");
    if (block.flag("is_error").value_or(false)) result.content = "Error: " + result.content;
    for (const ChatMessage& earlier : out_)
      for (const ToolCall& call : earlier.tool_calls)
        if (call.id == result.tool_call_id) result.name = call.name;
    out_.push_back(std::move(result));
  }

  std::vector<ChatMessage>& out_;
  ChatMessage message_;
};

// Results of tools come before the text beside them, in the order of the conversation.
void read_message(const Fields& item, std::vector<ChatMessage>& messages) {
  const std::string role = item.required_text("role");
  if (item.ok() && role != "user" && role != "assistant" && role != "system")
    return item.fail("role", fmt::format("{}: expected user, assistant or system, found '{}'",
                                         item.path("role"), role));
  MessageReader reader(role, messages);
  const json::value* content = item.any("content");
  if (content == nullptr) {
    if (item.ok())
      item.fail("content",
                fmt::format("{}: expected a string or an array, found none", item.path("content")));
    return;
  }
  if (content->is_string()) {
    reader.message().content = std::string(view(content->get_string()));
  } else if (const json::array* blocks = item.list("content")) {
    for (size_t i = 0; i < blocks->size(); ++i) {
      const json::object* block = item.element(*blocks, "content", i);
      if (block == nullptr) return;
      reader.add(Fields(*block, item.path("content", i), item.error()));
    }
  }
  reader.end();
}

// The schemas of tools that the client runs but does not describe.
const char* known_schema(std::string_view type) {
  if (type.starts_with("bash_"))
    return R"({"type":"object","properties":{"command":{"type":"string"},"restart":{"type":"boolean"}}})";
  if (type.starts_with("text_editor_"))
    return R"({"type":"object","properties":{"command":{"type":"string"},"path":{"type":"string"},)"
           R"("file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},)"
           R"("insert_line":{"type":"integer"},"view_range":{"type":"array"}},"required":["command","path"]})";
  if (type.starts_with("memory_"))
    return R"({"type":"object","properties":{"command":{"type":"string"},"path":{"type":"string"},)"
           R"("file_text":{"type":"string"}},"required":["command"]})";
  return nullptr;
}

void read_tool(const Fields& item, Call& call, ChatPrompt& prompt) {
  const std::string type = item.text("type").value_or("custom");
  Tool tool{.name = item.required_text("name"),
            .description = item.text("description").value_or("")};
  if (type == "custom")
    return add_tool(item, call, prompt, std::move(tool), item.object("input_schema"));
  const char* schema = known_schema(type);
  if (schema == nullptr) return;  // run by the vendor's servers
  ApiError none;
  const auto parsed = parse_body(schema, none);
  add_tool(item, call, prompt, std::move(tool), &*parsed);
}

void read_tools(const Fields& body, Call& call, ChatPrompt& prompt) {
  const json::array* tools = body.list("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const json::object* tool = body.element(*tools, "tools", i);
    if (tool == nullptr) break;
    read_tool(Fields(*tool, body.path("tools", i), body.error()), call, prompt);
  }
  const json::object* choice = body.object("tool_choice");
  if (choice != nullptr) {
    const Fields fields(*choice, "tool_choice", body.error());
    const std::string type = fields.required_text("type");
    if (type == "none") prompt.tools.clear();
    if (type == "any" || type == "tool")
      body.fail("tool_choice", fmt::format("tool_choice: {}", kNoForcedCall),
                "unsupported_parameter");
    call.one_call_only = fields.flag("disable_parallel_tool_use").value_or(false);
  }
  call.parse_tools = !prompt.tools.empty();
}

void read_thinking(const Fields& body, const ModelFacts& facts, ChatPrompt& prompt,
                   MessageReplyOptions& reply) {
  Thinking thinking;
  if (const json::object* object = body.object("thinking")) {
    const Fields fields(*object, "thinking", body.error());
    const std::string type = fields.required_text("type");
    thinking.enabled = type != "disabled";
    reply.hide_thinking = fields.text("display").value_or("") == "omitted";
  }
  if (const json::object* config = body.object("output_config")) {
    const Fields fields(*config, "output_config", body.error());
    if (fields.has("format"))
      fields.fail("format", fmt::format("output_config.format: {}", kNoGrammar),
                  "unsupported_parameter");
    if (const auto effort = fields.text("effort"))
      thinking.effort = thinking_of_effort(fields, "effort", *effort).effort;
  }
  apply_thinking(thinking, facts, prompt);
}

}  // namespace

Call parse_messages(const json::object& object, const ModelFacts& facts, MessageReplyOptions& reply,
                    bool counting, ApiError& error) {
  const Fields body(object, "", error);
  Call parsed;
  ChatPrompt prompt;
  std::vector<ChatMessage> messages;
  const std::string system = text_of_blocks(body, "system", "\n\n");
  if (!system.empty()) messages.push_back({.role = "system", .content = system});
  const json::array* list = body.list("messages");
  if (body.ok() && (list == nullptr || list->empty()))
    body.fail("messages", "messages: expected at least one, found none",
              "missing_required_parameter");
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const json::object* message = body.element(*list, "messages", i);
    if (message == nullptr) break;
    read_message(Fields(*message, body.path("messages", i), error), messages);
  }
  read_tools(body, parsed, prompt);
  read_thinking(body, facts, prompt, reply);
  // An answer that is begun by the client goes on where it ends.
  if (!messages.empty() && messages.back().role == "assistant" &&
      messages.back().tool_calls.empty()) {
    prompt.answer_begin = messages.back().content;
    messages.pop_back();
    prompt.template_arguments["enable_thinking"] = "false";
  }
  prompt.messages = fitted(std::move(messages), facts);

  const auto max_tokens = body.integer("max_tokens", 1, INT32_MAX);
  if (!counting && !max_tokens && body.ok())
    body.fail("max_tokens", "max_tokens: expected a number of tokens, found none",
              "missing_required_parameter");
  Call call =
      chat_call(facts, std::move(prompt), read_sampling(body), read_stops(body, "stop_sequences"),
                static_cast<int32_t>(max_tokens.value_or(0)), 1);
  call.parse_tools = parsed.parse_tools;
  call.one_call_only = parsed.one_call_only;
  call.parameter_types = std::move(parsed.parameter_types);
  call.model = body.text("model").value_or(facts.name);
  call.stream = body.flag("stream").value_or(false);
  reply.model = call.model;
  return call;
}

}  // namespace kapitsa::server::api
