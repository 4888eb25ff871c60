// https://platform.openai.com/docs/api-reference/chat: the request parameters and the order of the
// chunks. What is sent is checked with the vendor's own SDKs (tests/clients).
#include "server/api/openai_chat.h"

#include "server/api/messages.h"
#include "server/api/openai_common.h"
#include "server/api/parameters.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::server::api {
namespace {

namespace json = boost::json;

constexpr int kMaxChoices = 16;

ToolCall read_tool_call(const Fields& item) {
  ToolCall call;
  call.id = item.text("id").value_or("");
  const json::object* function = item.object("function");
  if (function == nullptr) {
    const json::object* custom = item.object("custom");
    if (custom == nullptr) {
      item.fail("function",
                fmt::format("{}: expected an object, found none", item.path("function")),
                "missing_required_parameter");
      return call;
    }
    const Fields fields(*custom, item.path("custom"), item.error());
    call.name = fields.required_text("name");
    call.arguments = custom_arguments(fields.text("input").value_or(""));
    return call;
  }
  const Fields fields(*function, item.path("function"), item.error());
  call.name = fields.required_text("name");
  // A string by the API; an object by some clients.
  if (const json::value* arguments = fields.any("arguments"))
    call.arguments =
        arguments->is_string() ? std::string(view(arguments->get_string())) : json_text(*arguments);
  if (call.arguments.empty()) call.arguments = "{}";
  return call;
}

ChatMessage read_message(const Fields& item) {
  ChatMessage message;
  message.role = item.required_text("role");
  if (message.role == "function") message.role = "tool";
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (item.ok() &&
      std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles))
    item.fail("role", fmt::format("{}: expected system, developer, user, assistant or tool, found "
                                  "'{}'",
                                  item.path("role"), message.role));
  message.content = content_text(item, "content");
  if (const auto refusal = item.text("refusal")) message.content += *refusal;
  message.name = item.text("name").value_or("");
  message.tool_call_id = item.text("tool_call_id").value_or("");
  message.reasoning = item.text("reasoning_content").value_or("");
  if (message.reasoning.empty()) message.reasoning = item.text("reasoning").value_or("");
  if (const json::array* calls = item.list("tool_calls")) {
    for (size_t i = 0; i < calls->size(); ++i) {
      const json::object* object = item.element(*calls, "tool_calls", i);
      if (object == nullptr) break;
      message.tool_calls.push_back(
          read_tool_call(Fields(*object, item.path("tool_calls", i), item.error())));
    }
  }
  if (item.ok() && message.role == "tool" && message.tool_call_id.empty() && message.name.empty())
    item.fail("tool_call_id",
              fmt::format("{}: expected the id of the call that this answers, found none",
                          item.path("tool_call_id")),
              "missing_required_parameter");
  return message;
}

// The names that tool_choice allows; empty: all.
std::vector<std::string> read_tool_choice(const Fields& body, bool& none) {
  const json::value* choice = body.any("tool_choice");
  if (choice == nullptr) return {};
  if (const auto* text = choice->if_string()) {
    none = *text == "none";
    if (none || *text == "auto") return {};
    body.fail("tool_choice", *text == "required"
                                 ? fmt::format("tool_choice: {}", kNoForcedCall)
                                 : fmt::format("tool_choice: expected none, auto, required or an "
                                               "object, found '{}'",
                                               view(*text)));
    return {};
  }
  const json::object* object = body.object("tool_choice");
  if (object == nullptr) return {};
  const Fields fields(*object, "tool_choice", body.error());
  if (fields.required_text("type") != "allowed_tools") {
    body.fail("tool_choice", fmt::format("tool_choice: {}", kNoForcedCall),
              "unsupported_parameter");
    return {};
  }
  const json::object* allowed = fields.object("allowed_tools");
  const Fields inner(allowed != nullptr ? *allowed : *object, "tool_choice.allowed_tools",
                     body.error());
  if (inner.text("mode").value_or("auto") != "auto")
    inner.fail("mode", fmt::format("tool_choice.allowed_tools.mode: {}", kNoForcedCall),
               "unsupported_parameter");
  std::vector<std::string> names;
  const json::array* tools = inner.list("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const json::object* tool = inner.element(*tools, "tools", i);
    if (tool == nullptr) break;
    const Fields tool_fields(*tool, inner.path("tools", i), body.error());
    const json::object* function = tool_fields.object("function");
    names.push_back(
        function != nullptr
            ? Fields(*function, tool_fields.path("function"), body.error()).required_text("name")
            : tool_fields.required_text("name"));
  }
  return names;
}

void read_tool(const Fields& item, Call& call, ChatPrompt& prompt) {
  const std::string type = item.text("type").value_or("function");
  const bool custom = type == "custom";
  if (!custom && type != "function")
    return item.fail("type", fmt::format("{}: expected function or custom, found '{}'",
                                         item.path("type"), type));
  const json::object* object = item.object(type);
  if (object == nullptr)
    return item.fail(type, fmt::format("{}: expected an object, found none", item.path(type)),
                     "missing_required_parameter");
  const Fields fields(*object, item.path(type), item.error());
  Tool tool{.name = fields.required_text("name"),
            .description = fields.text("description").value_or("")};
  if (custom) {
    const json::object* format = fields.object("format");
    if (format != nullptr &&
        Fields(*format, fields.path("format"), item.error()).text("type").value_or("text") !=
            "text")
      fields.fail("format", fmt::format("{}: {}", fields.path("format"), kNoGrammar),
                  "unsupported_parameter");
    call.custom_tools.insert(tool.name);
    ApiError none;
    const auto schema = parse_body(kCustomToolSchema, none);
    return add_tool(fields, call, prompt, std::move(tool), &*schema);
  }
  add_tool(fields, call, prompt, std::move(tool), fields.object("parameters"));
}

void read_tools(const Fields& body, Call& call, ChatPrompt& prompt) {
  bool none = false;
  const std::vector<std::string> allowed = read_tool_choice(body, none);
  const json::array* tools = body.list("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const json::object* tool = body.element(*tools, "tools", i);
    if (tool == nullptr) break;
    read_tool(Fields(*tool, body.path("tools", i), body.error()), call, prompt);
  }
  for (const std::string& name : allowed) {
    if (std::none_of(prompt.tools.begin(), prompt.tools.end(),
                     [&](const Tool& tool) { return tool.name == name; }))
      body.fail("tool_choice", fmt::format("tool_choice: there is no tool named '{}'", name));
  }
  if (!allowed.empty())
    std::erase_if(prompt.tools, [&](const Tool& tool) {
      return std::find(allowed.begin(), allowed.end(), tool.name) == allowed.end();
    });
  if (none) prompt.tools.clear();
  call.parse_tools = !prompt.tools.empty();
  call.one_call_only = !body.flag("parallel_tool_calls").value_or(true);
}

void read_thinking(const Fields& body, const ModelFacts& facts, ChatPrompt& prompt) {
  if (const json::object* arguments = body.object("chat_template_kwargs"))
    for (const auto& member : *arguments)
      prompt.template_arguments[std::string(member.key())] = json_text(member.value());
  for (const char* name : {"enable_thinking", "preserve_thinking"})
    if (const auto on = body.flag(name)) prompt.template_arguments[name] = *on ? "true" : "false";
  const auto effort = body.text("reasoning_effort");
  if (effort) apply_thinking(thinking_of_effort(body, "reasoning_effort", *effort), facts, prompt);
}

void refuse_unsupported(const Fields& body) {
  const json::object* format = body.object("response_format");
  if (format != nullptr) {
    const Fields fields(*format, "response_format", body.error());
    if (fields.required_text("type") != "text")
      fields.fail("type", fmt::format("response_format: {}", kNoGrammar), "unsupported_parameter");
  }
  const json::array* modalities = body.list("modalities");
  for (size_t i = 0; modalities != nullptr && i < modalities->size(); ++i)
    if ((*modalities)[i] != "text") body.fail("modalities", "modalities: only text is supported");
  body.refuse("audio", "audio is not supported");
  body.refuse("functions", "not supported; use tools");
  body.refuse("function_call", "not supported; use tool_choice");
  body.refuse("web_search_options", "web search is not supported");
  body.refuse("grammar", kNoGrammar);
  body.refuse("min_tokens", "not supported");
}

}  // namespace

ChatPrompt parse_chat_prompt(const json::object& object, const ModelFacts& facts, Call& call,
                             ApiError& error) {
  const Fields body(object, "", error);
  ChatPrompt prompt;
  std::vector<ChatMessage> messages;
  const json::array* list = body.list("messages");
  if (body.ok() && (list == nullptr || list->empty()))
    body.fail("messages", "messages: expected at least one, found none",
              "missing_required_parameter");
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const json::object* message = body.element(*list, "messages", i);
    if (message == nullptr) break;
    messages.push_back(read_message(Fields(*message, body.path("messages", i), error)));
  }
  read_tools(body, call, prompt);
  read_thinking(body, facts, prompt);
  if (const auto begin = body.flag("add_generation_prompt")) prompt.add_generation_prompt = *begin;
  prompt.messages = fitted(std::move(messages), facts);
  return prompt;
}

Call parse_chat(const json::object& object, const ModelFacts& facts, ChatReplyOptions& reply,
                ApiError& error) {
  const Fields body(object, "", error);
  Call parsed;
  ChatPrompt prompt = parse_chat_prompt(object, facts, parsed, error);
  refuse_unsupported(body);
  Sampling sampling = read_sampling(body);
  reply.logprobs = body.flag("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, 20);
  if (top && !reply.logprobs)
    body.fail("top_logprobs", "top_logprobs: has a meaning only with \"logprobs\": true");
  if (reply.logprobs) sampling.n_logprobs = static_cast<int32_t>(top.value_or(0));
  auto max_tokens = body.integer("max_completion_tokens", 1, INT32_MAX);
  if (!max_tokens) max_tokens = body.integer("max_tokens", 1, INT32_MAX);
  const auto n = body.integer("n", 1, kMaxChoices).value_or(1);
  Call call = chat_call(facts, std::move(prompt), sampling, read_stops(body, "stop"),
                        static_cast<int32_t>(max_tokens.value_or(0)), static_cast<int>(n));
  for (Request& request : call.requests)
    request.ignore_eos = body.flag("ignore_eos").value_or(false);
  call.parse_tools = parsed.parse_tools;
  call.one_call_only = parsed.one_call_only;
  call.parameter_types = std::move(parsed.parameter_types);
  call.model = body.text("model").value_or(facts.name);
  call.stream = body.flag("stream").value_or(false);
  reply.include_usage = include_usage(body, call.stream);
  reply.custom_tools = std::move(parsed.custom_tools);
  reply.model = call.model;
  reply.choices = static_cast<size_t>(n);
  return call;
}

namespace {

class ChatDialect final : public Dialect {
public:
  explicit ChatDialect(ChatReplyOptions options)
      : options_(std::move(options)), usages_(options_.choices), calls_(options_.choices, -1),
        custom_(options_.choices), held_(options_.choices) {}

  Family family() const override { return Family::openai; }

  std::string begin() override {
    std::string text;
    for (size_t choice = 0; choice < options_.choices; ++choice)
      text += chunk(
          choice, [](JsonWriter& json) { json.member("role", "assistant").member("content", ""); });
    return text;
  }

  std::string event(size_t choice, const AnswerEvent& event) override {
    if (const auto* reasoning = std::get_if<ReasoningText>(&event)) {
      if (reasoning->text.empty()) return "";
      return chunk(choice,
                   [&](JsonWriter& json) { json.member("reasoning_content", reasoning->text); });
    }
    if (const auto* text = std::get_if<AnswerText>(&event)) {
      if (text->text.empty() && text->logprobs.empty()) return "";
      return chunk(
          choice, [&](JsonWriter& json) { json.member("content", text->text); }, "",
          &text->logprobs);
    }
    if (const auto* call = std::get_if<CallBegin>(&event)) {
      ++calls_[choice];
      custom_[choice] = is_custom(call->name);
      held_[choice].clear();
      return chunk(choice, [&](JsonWriter& json) { write_call_begin(json, choice, *call); });
    }
    if (const auto* arguments = std::get_if<CallArguments>(&event)) {
      if (!custom_[choice]) return call_delta(choice, "function", "arguments", arguments->text);
      held_[choice] += arguments->text;  // plain text can only be read out of the whole
      return "";
    }
    if (std::holds_alternative<CallEnd>(event) && custom_[choice])
      return call_delta(choice, "custom", "input", custom_input(held_[choice]));
    if (const auto* end = std::get_if<Ended>(&event)) {
      usages_[choice] = end->usage;
      return chunk(choice, [](JsonWriter&) {}, finish_reason(*end));
    }
    return "";
  }

  std::string end() override {
    std::string text;
    if (options_.include_usage) {
      JsonWriter json;
      open(json, "chat.completion.chunk");
      json.key("choices").begin_array().end_array();
      write_usage(json, total(usages_, options_.choices));
      text = sse("", json.end_object().take());
    }
    return text + "data: [DONE]\n\n";
  }

  std::string keep_alive() override { return ": still working\n\n"; }

  std::string failure(const ApiError& error) override {
    return sse("", error_json(Family::openai, error, options_.id));
  }

  std::string body(const std::vector<WholeAnswer>& answers) override {
    JsonWriter json;
    open(json, "chat.completion");
    json.key("choices").begin_array();
    std::vector<Usage> usages;
    for (size_t i = 0; i < answers.size(); ++i) {
      write_choice(json, i, answers[i]);
      usages.push_back(answers[i].end.usage);
    }
    json.end_array();
    write_usage(json, total(usages, options_.choices));
    return json.end_object().take();
  }

private:
  void open(JsonWriter& json, const char* kind) const {
    json.begin_object().member("id", "chatcmpl-" + options_.id).member("object", kind);
    json.member("created", options_.created).member("model", options_.model);
  }

  template <typename Delta>
  std::string chunk(size_t choice, Delta delta, const char* finish = "",
                    const std::vector<TextDelta::Position>* logprobs = nullptr) const {
    JsonWriter json;
    open(json, "chat.completion.chunk");
    json.key("choices").begin_array().begin_object().member("index", choice);
    json.key("delta").begin_object();
    delta(json);
    json.end_object();
    if (options_.logprobs && logprobs != nullptr) {
      json.key("logprobs").begin_object();
      write_logprobs(json, "content", *logprobs);
      json.key("refusal").null().end_object();
    } else {
      json.key("logprobs").null();
    }
    json.key("finish_reason");
    if (*finish == '\0') {
      json.null();
    } else {
      json.value(finish);
    }
    json.end_object().end_array();
    if (options_.include_usage) json.key("usage").null();
    return sse("", json.end_object().take());
  }

  bool is_custom(const std::string& tool) const { return options_.custom_tools.contains(tool); }

  std::string call_delta(size_t choice, const char* kind, const char* member,
                         const std::string& text) const {
    return chunk(choice, [&](JsonWriter& json) {
      json.key("tool_calls").begin_array().begin_object().member("index", calls_[choice]);
      json.key(kind).begin_object().member(member, text).end_object();
      json.end_object().end_array();
    });
  }

  void write_call_begin(JsonWriter& json, size_t choice, const CallBegin& call) const {
    json.key("tool_calls").begin_array().begin_object().member("index", calls_[choice]);
    write_call(json, call.id, call.name, "");
    json.end_object().end_array();
  }

  void write_call(JsonWriter& json, const std::string& id, const std::string& name,
                  const std::string& arguments) const {
    const bool custom = is_custom(name);
    const char* kind = custom ? "custom" : "function";
    json.member("id", "call_" + id).member("type", kind);
    json.key(kind).begin_object().member("name", name);
    if (custom) {
      json.member("input", arguments.empty() ? arguments : custom_input(arguments));
    } else {
      json.member("arguments", arguments);
    }
    json.end_object();
  }

  void write_choice(JsonWriter& json, size_t index, const WholeAnswer& answer) const {
    const std::string content = answer.joined(AnswerPart::Kind::text);
    const std::string reasoning = answer.joined(AnswerPart::Kind::reasoning);
    const bool calls = std::any_of(answer.parts.begin(), answer.parts.end(), [](const auto& part) {
      return part.kind == AnswerPart::Kind::call;
    });
    json.begin_object().member("index", index).key("message").begin_object();
    json.member("role", "assistant").key("content");
    if (content.empty() && calls) {
      json.null();
    } else {
      json.value(content);
    }
    json.key("refusal").null();
    if (!reasoning.empty()) json.member("reasoning_content", reasoning);
    if (calls) {
      json.key("tool_calls").begin_array();
      for (const AnswerPart& part : answer.parts) {
        if (part.kind != AnswerPart::Kind::call) continue;
        json.begin_object();
        write_call(json, part.call_id, part.name, part.text);
        json.end_object();
      }
      json.end_array();
    }
    json.end_object().key("logprobs");
    if (options_.logprobs) {
      json.begin_object();
      write_logprobs(json, "content", answer.logprobs);
      json.key("refusal").null().end_object();
    } else {
      json.null();
    }
    json.member("finish_reason", finish_reason(answer.end)).end_object();
  }

  const ChatReplyOptions options_;
  std::vector<Usage> usages_;
  // Of each choice: the index of its last call, whether that is of a custom tool, and its
  // arguments.
  std::vector<int> calls_;
  std::vector<bool> custom_;
  std::vector<std::string> held_;
};

}  // namespace

std::unique_ptr<Dialect> chat_dialect(ChatReplyOptions options) {
  return std::make_unique<ChatDialect>(std::move(options));
}

}  // namespace kapitsa::server::api
