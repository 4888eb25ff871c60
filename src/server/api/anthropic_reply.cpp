// The reply half: one block is open at a time, each begun and ended once, indices without gaps.
#include "base/json_write.h"
#include "server/api/anthropic_messages.h"
#include "server/api/fields.h"

#include <boost/json/object.hpp>

namespace kapitsa::server::api {
namespace {

constexpr const char* kSignature = "kapitsa";  // clients hand it back unread

const char* stop_reason(const Ended& end) {
  switch (end.reason) {
  case EndReason::max_tokens: return "max_tokens";
  case EndReason::context_full: return "model_context_window_exceeded";
  case EndReason::stop_text: return "stop_sequence";
  case EndReason::stop: break;
  }
  return end.has_calls ? "tool_use" : "end_turn";
}

// input_tokens are those that were not cached; clients add the three up.
void write_usage_members(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.member("input_tokens", usage.prompt_tokens - usage.cached_tokens)
      .member("cache_read_input_tokens", usage.cached_tokens)
      .member("cache_creation_input_tokens", 0)
      .member("output_tokens", usage.completion_tokens);
  json.end_object();
}

void write_stop(JsonWriter& json, const Ended& end) {
  json.member("stop_reason", stop_reason(end)).key("stop_sequence");
  if (end.reason == EndReason::stop_text) {
    json.value(end.stop_text);
  } else {
    json.null();
  }
}

// The input of a call must be an object; what the model wrote may be something else, or half of it.
std::string object_of(const AnswerPart& part) {
  ApiError error;
  if (part.complete && parse_body(part.text, error)) return part.text;
  if (part.text.empty()) return "{}";
  JsonWriter json;
  return json.begin_object().member("invalid_json", part.text).end_object().take();
}

class MessagesDialect final : public Dialect {
public:
  explicit MessagesDialect(MessageReplyOptions options) : options_(std::move(options)) {}

  Family family() const override { return Family::anthropic; }

  std::string begin() override {
    JsonWriter json;
    json.begin_object().member("type", "message_start").key("message").begin_object();
    write_head(json);
    json.key("content").begin_array().end_array();
    json.key("stop_reason").null().key("stop_sequence").null();
    write_usage_members(json, {});
    json.end_object();
    return sse("message_start", json.end_object().take());
  }

  std::string event(size_t, const AnswerEvent& event) override {
    if (const auto* reasoning = std::get_if<ReasoningText>(&event)) {
      if (reasoning->text.empty()) return "";
      std::string text = open(Block::thinking);
      if (!options_.hide_thinking) text += delta("thinking_delta", "thinking", reasoning->text);
      return text;
    }
    if (const auto* answer = std::get_if<AnswerText>(&event)) {
      if (answer->text.empty()) return "";
      // White space between a call and what follows is no text of its own.
      if (block_ == Block::none && index_ > 0 && blank(answer->text)) return "";
      const std::string opened = open(Block::text);
      return opened + delta("text_delta", "text", answer->text);
    }
    if (const auto* call = std::get_if<CallBegin>(&event)) return begin_call(*call);
    if (const auto* arguments = std::get_if<CallArguments>(&event))
      return delta("input_json_delta", "partial_json", arguments->text);
    if (std::holds_alternative<CallEnd>(event)) return close();
    if (const auto* end = std::get_if<Ended>(&event)) return close().append(message_delta(*end));
    return "";
  }

  std::string end() override { return sse("message_stop", R"({"type":"message_stop"})"); }
  std::string keep_alive() override { return sse("ping", R"({"type":"ping"})"); }

  std::string failure(const ApiError& error) override {
    return sse("error", error_json(Family::anthropic, error, options_.id));
  }

  std::string body(const std::vector<WholeAnswer>& answers) override {
    const WholeAnswer& answer = answers.front();
    JsonWriter json;
    json.begin_object();
    write_head(json);
    json.key("content").begin_array();
    bool first = true;
    for (const AnswerPart& part : answer.parts) {
      if (part.kind != AnswerPart::Kind::text || first || !blank(part.text))
        write_block(json, part);
      first = false;
    }
    json.end_array();
    write_stop(json, answer.end);
    write_usage_members(json, answer.end.usage);
    return json.end_object().take();
  }

private:
  enum class Block : uint8_t { none, text, thinking, call };

  static bool blank(const std::string& text) {
    return text.find_first_not_of(" \t\r\n") == std::string::npos;
  }

  void write_head(JsonWriter& json) const {
    json.member("id", "msg_" + options_.id).member("type", "message");
    json.member("role", "assistant").member("model", options_.model);
  }

  void write_block(JsonWriter& json, const AnswerPart& part) const {
    json.begin_object();
    switch (part.kind) {
    case AnswerPart::Kind::reasoning:
      json.member("type", "thinking")
          .member("thinking", options_.hide_thinking ? std::string() : part.text)
          .member("signature", kSignature);
      break;
    case AnswerPart::Kind::text:
      json.member("type", "text").member("text", part.text).key("citations").null();
      break;
    case AnswerPart::Kind::call:
      json.member("type", "tool_use").member("id", "toolu_" + part.call_id);
      json.member("name", part.name).key("input").raw(object_of(part));
      break;
    }
    json.end_object();
  }

  std::string block_start(Block block, const std::string& content) {
    block_ = block;
    JsonWriter json;
    json.begin_object().member("type", "content_block_start").member("index", index_);
    json.key("content_block").raw(content);
    return sse("content_block_start", json.end_object().take());
  }

  std::string open(Block block) {
    if (block_ == block) return "";
    const std::string closed = close();
    return closed + block_start(block, block == Block::text
                                           ? R"({"type":"text","text":"","citations":null})"
                                           : R"({"type":"thinking","thinking":"","signature":""})");
  }

  std::string begin_call(const CallBegin& call) {
    const std::string closed = close();
    JsonWriter json;
    json.begin_object().member("type", "tool_use").member("id", "toolu_" + call.id);
    json.member("name", call.name).key("input").begin_object().end_object();
    return closed + block_start(Block::call, json.end_object().take());
  }

  std::string delta(const char* type, const char* member, const std::string& text) const {
    JsonWriter json;
    json.begin_object().member("type", "content_block_delta").member("index", index_);
    json.key("delta").begin_object().member("type", type).member(member, text).end_object();
    return sse("content_block_delta", json.end_object().take());
  }

  std::string close() {
    if (block_ == Block::none) return "";
    std::string text;
    if (block_ == Block::thinking) text = delta("signature_delta", "signature", kSignature);
    JsonWriter json;
    json.begin_object().member("type", "content_block_stop").member("index", index_);
    text += sse("content_block_stop", json.end_object().take());
    block_ = Block::none;
    ++index_;
    return text;
  }

  static std::string message_delta(const Ended& end) {
    JsonWriter json;
    json.begin_object().member("type", "message_delta").key("delta").begin_object();
    write_stop(json, end);
    json.end_object();
    write_usage_members(json, end.usage);
    return sse("message_delta", json.end_object().take());
  }

  const MessageReplyOptions options_;
  Block block_ = Block::none;
  int index_ = 0;  // of the open block, or of the next
};

}  // namespace

std::unique_ptr<Dialect> messages_dialect(MessageReplyOptions options) {
  return std::make_unique<MessagesDialect>(std::move(options));
}

}  // namespace kapitsa::server::api
