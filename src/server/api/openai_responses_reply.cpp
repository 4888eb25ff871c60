// The reply half: every event repeats its type and has the next sequence number; one item is open
// at a time; the end is exactly one of completed, incomplete and failed.
#include "base/json_write.h"
#include "server/api/openai_common.h"
#include "server/api/openai_responses.h"

#include <boost/json/object.hpp>
#include <fmt/format.h>

namespace kapitsa::server::api {
namespace {

using Kind = AnswerPart::Kind;

class ResponseDialect final : public Dialect {
public:
  explicit ResponseDialect(ResponseReplyOptions options) : options_(std::move(options)) {}

  Family family() const override { return Family::openai; }

  std::string begin() override {
    const std::string created = lifecycle("response.created", "in_progress");
    return created + lifecycle("response.in_progress", "in_progress");
  }

  std::string event(size_t, const AnswerEvent& event) override {
    if (const auto* reasoning = std::get_if<ReasoningText>(&event)) {
      if (reasoning->text.empty()) return "";
      return add_text(Kind::reasoning, reasoning->text);
    }
    if (const auto* text = std::get_if<AnswerText>(&event)) {
      if (text->text.empty()) return "";
      if (!open_ && !answer_.parts.empty() && answer_.parts.back().kind == Kind::call &&
          text->text.find_first_not_of(" \t\r\n") == std::string::npos)
        return "";
      return add_text(Kind::text, text->text);
    }
    if (const auto* call = std::get_if<CallBegin>(&event)) {
      const std::string closed = close_item();
      answer_.add(*call);
      return closed + open_item();
    }
    if (const auto* arguments = std::get_if<CallArguments>(&event)) {
      answer_.add(*arguments);
      if (is_custom(answer_.parts.back())) return "";  // comes whole, as plain text
      return delta("response.function_call_arguments.delta", arguments->text);
    }
    if (std::holds_alternative<CallEnd>(event)) {
      answer_.add(event);
      return close_item();
    }
    if (const auto* end = std::get_if<Ended>(&event)) {
      const std::string closed = close_item();
      answer_.end = *end;
      return closed;
    }
    return "";
  }

  std::string end() override {
    const bool incomplete = is_incomplete(answer_.end);
    return lifecycle(incomplete ? "response.incomplete" : "response.completed",
                     incomplete ? "incomplete" : "completed");
  }

  // An event, because clients do not count comments as a sign of life.
  std::string keep_alive() override { return lifecycle("response.in_progress", "in_progress"); }

  std::string failure(const ApiError& error) override {
    error_ = error;
    return lifecycle("response.failed", "failed");
  }

  std::string body(const std::vector<WholeAnswer>& answers) override {
    answer_ = answers.front();
    JsonWriter json;
    write_response(json, is_incomplete(answer_.end) ? "incomplete" : "completed");
    return json.take();
  }

private:
  static bool is_incomplete(const Ended& end) {
    return end.reason == EndReason::max_tokens || end.reason == EndReason::context_full;
  }
  bool is_custom(const AnswerPart& part) const { return options_.custom_tools.contains(part.name); }
  size_t index() const { return answer_.parts.size() - 1; }

  std::string item_id(size_t i) const {
    const AnswerPart& part = answer_.parts[i];
    const char* prefix = part.kind == Kind::reasoning ? "rs"
                         : part.kind == Kind::text    ? "msg"
                         : is_custom(part)            ? "ctc"
                                                      : "fc";
    return fmt::format("{}_{}{}", prefix, options_.id, i);
  }

  // Writes the members that each event begins with, then those of `write`.
  template <typename Write>
  std::string make(const char* type, Write write) {
    JsonWriter json;
    json.begin_object().member("type", type).member("sequence_number", sequence_++);
    write(json);
    return sse(type, json.end_object().take());
  }

  std::string lifecycle(const char* type, const char* status) {
    return make(type, [&](JsonWriter& json) {
      json.key("response");
      write_response(json, status);
    });
  }

  // An event of the open item; for text and reasoning with the index of its only part.
  template <typename Write>
  std::string item_event(const char* type, Write write) {
    return make(type, [&](JsonWriter& json) {
      json.member("item_id", item_id(index())).member("output_index", index());
      if (answer_.parts.back().kind != Kind::call) json.member("content_index", 0);
      write(json);
    });
  }

  std::string delta(const char* type, const std::string& text) {
    const bool is_text = answer_.parts.back().kind == Kind::text;
    return item_event(type, [&](JsonWriter& json) {
      json.member("delta", text);
      if (is_text) json.key("logprobs").begin_array().end_array();
    });
  }

  std::string add_text(Kind kind, const std::string& text) {
    std::string events;
    if (!open_ || answer_.parts.back().kind != kind) {
      events = close_item();
      answer_.parts.push_back({.kind = kind});
      events += open_item();
    }
    answer_.parts.back().text += text;
    return events + delta(kind == Kind::text ? "response.output_text.delta"
                                             : "response.reasoning_text.delta",
                          text);
  }

  std::string open_item() {
    open_ = true;
    const AnswerPart& part = answer_.parts.back();
    std::string events = make("response.output_item.added", [&](JsonWriter& json) {
      json.member("output_index", index()).key("item");
      write_item(json, index(), "in_progress", true);
    });
    if (part.kind == Kind::call) return events;
    return events + item_event("response.content_part.added", [&](JsonWriter& json) {
             json.key("part");
             write_content(json, part.kind, "");
           });
  }

  std::string close_item() {
    if (!open_) return "";
    const AnswerPart& part = answer_.parts.back();
    std::string events;
    if (part.kind == Kind::call) {
      events = close_call(part);
    } else {
      const bool text = part.kind == Kind::text;
      events = item_event(text ? "response.output_text.done" : "response.reasoning_text.done",
                          [&](JsonWriter& json) {
                            json.member("text", part.text);
                            if (text) json.key("logprobs").begin_array().end_array();
                          });
      events += item_event("response.content_part.done", [&](JsonWriter& json) {
        json.key("part");
        write_content(json, part.kind, part.text);
      });
    }
    open_ = false;
    return events + make("response.output_item.done", [&](JsonWriter& json) {
             json.member("output_index", index()).key("item");
             write_item(json, index(), part.complete ? "completed" : "incomplete", false);
           });
  }

  std::string close_call(const AnswerPart& part) {
    if (!is_custom(part))
      return item_event("response.function_call_arguments.done", [&](JsonWriter& json) {
        json.member("name", part.name).member("arguments", part.text);
      });
    const std::string input = custom_input(part.text);
    const std::string events = delta("response.custom_tool_call_input.delta", input);
    return events + item_event("response.custom_tool_call_input.done",
                               [&](JsonWriter& json) { json.member("input", input); });
  }

  static void write_content(JsonWriter& json, Kind kind, const std::string& text) {
    json.begin_object();
    if (kind == Kind::reasoning) {
      json.member("type", "reasoning_text").member("text", text);
    } else {
      json.member("type", "output_text").member("text", text);
      json.key("annotations").begin_array().end_array();
      json.key("logprobs").begin_array().end_array();
    }
    json.end_object();
  }

  // `fresh`: as it is announced, without what is to come.
  void write_item(JsonWriter& json, size_t i, const char* status, bool fresh) const {
    const AnswerPart& part = answer_.parts[i];
    json.begin_object().member("id", item_id(i));
    if (part.kind == Kind::reasoning) {
      json.member("type", "reasoning").key("summary").begin_array().end_array();
      json.key("content").begin_array();
      if (!fresh) write_content(json, part.kind, part.text);
      json.end_array().key("encrypted_content");
      if (options_.encrypted_reasoning && !fresh) {
        json.value(part.text);
      } else {
        json.null();
      }
    } else if (part.kind == Kind::text) {
      json.member("type", "message").member("role", "assistant").key("content").begin_array();
      if (!fresh) write_content(json, part.kind, part.text);
      json.end_array();
    } else {
      write_call(json, part, fresh);
    }
    json.member("status", status).end_object();
  }

  void write_call(JsonWriter& json, const AnswerPart& part, bool fresh) const {
    const bool custom = is_custom(part);
    json.member("type", custom ? "custom_tool_call" : "function_call");
    json.member("call_id", "call_" + part.call_id).member("name", part.name);
    if (custom) {
      json.member("input", fresh ? std::string() : custom_input(part.text));
    } else {
      json.member("arguments", fresh ? std::string() : part.text);
    }
    if (const auto found = options_.namespaces.find(part.name); found != options_.namespaces.end())
      json.member("namespace", found->second);
  }

  void write_response(JsonWriter& json, const std::string& status) const {
    const bool ended = status != "in_progress";
    json.begin_object().member("id", "resp_" + options_.id).member("object", "response");
    json.member("created_at", options_.created).member("status", status);
    json.member("model", options_.model);
    json.key("error");
    if (error_) {
      json.begin_object();
      json.member("code", error_.code.empty() ? std::string("server_error") : error_.code);
      json.member("message", error_.message).end_object();
    } else {
      json.null();
    }
    json.key("incomplete_details");
    if (status == "incomplete") {
      json.begin_object().member("reason", "max_output_tokens").end_object();
    } else {
      json.null();
    }
    json.key("output").begin_array();
    for (size_t i = 0; ended && i < answer_.parts.size(); ++i)
      write_item(json, i, answer_.parts[i].complete ? "completed" : "incomplete", false);
    json.end_array();
    for (const auto& [name, text] : options_.echo)
      json.key(name).raw(text);
    json.key("previous_response_id").null().member("store", false);
    json.member("truncation", "disabled").member("background", false);
    json.key("usage");
    if (!ended || error_) {
      json.null();
    } else {
      write_usage(json, answer_.end.usage);
    }
    json.end_object();
  }

  static void write_usage(JsonWriter& json, const Usage& usage) {
    json.begin_object().member("input_tokens", usage.prompt_tokens);
    json.key("input_tokens_details").begin_object();
    json.member("cached_tokens", usage.cached_tokens).end_object();
    json.member("output_tokens", usage.completion_tokens);
    json.key("output_tokens_details").begin_object();
    json.member("reasoning_tokens", usage.reasoning_tokens).end_object();
    json.member("total_tokens", usage.prompt_tokens + usage.completion_tokens).end_object();
  }

  const ResponseReplyOptions options_;
  WholeAnswer answer_;  // its last part is the open item, while `open_`
  bool open_ = false;
  int64_t sequence_ = 0;
  ApiError error_;
};

}  // namespace

std::unique_ptr<Dialect> response_dialect(ResponseReplyOptions options) {
  return std::make_unique<ResponseDialect>(std::move(options));
}

}  // namespace kapitsa::server::api
