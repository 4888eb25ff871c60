#include "server/api/openai_common.h"

#include "server/api/parameters.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

namespace kapitsa::server::api {
namespace {

void write_token(JsonWriter& json, const TokenLogprob& token) {
  json.member("token", token.bytes).key("bytes").begin_array();
  for (const char byte : token.bytes)
    json.value(static_cast<uint8_t>(byte));
  json.end_array().member("logprob", static_cast<double>(token.logprob));
}

}  // namespace

const char* finish_reason(const Ended& end) {
  if (end.reason == EndReason::max_tokens || end.reason == EndReason::context_full) return "length";
  return end.has_calls ? "tool_calls" : "stop";
}

Usage total(const std::vector<Usage>& usages, size_t n) {
  Usage sum;
  for (size_t i = 0; i < usages.size(); ++i) {
    const Usage& usage = usages[i];
    if (i % n == 0) sum.prompt_tokens += usage.prompt_tokens;
    if (i % n == 0) sum.cached_tokens += usage.cached_tokens;
    sum.completion_tokens += usage.completion_tokens;
    sum.reasoning_tokens += usage.reasoning_tokens;
  }
  return sum;
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.member("prompt_tokens", usage.prompt_tokens)
      .member("completion_tokens", usage.completion_tokens)
      .member("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.member("cached_tokens", usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object();
  json.member("reasoning_tokens", usage.reasoning_tokens).end_object();
  json.end_object();
}

void write_logprob(JsonWriter& json, const TextDelta::Position& position) {
  json.begin_object();
  write_token(json, position.chosen);
  json.key("top_logprobs").begin_array();
  for (const TokenLogprob& token : position.top) {
    json.begin_object();
    write_token(json, token);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_logprobs(JsonWriter& json, const char* name,
                    const std::vector<TextDelta::Position>& logprobs) {
  json.key(name).begin_array();
  for (const TextDelta::Position& position : logprobs)
    write_logprob(json, position);
  json.end_array();
}

std::string content_text(const Fields& fields, std::string_view name) {
  const boost::json::value* value = fields.any(name);
  if (value == nullptr || value->is_string()) return fields.text(name).value_or("");
  std::string text;
  const boost::json::array* parts = fields.list(name);
  for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
    const auto* object = fields.element(*parts, name, i);
    if (object == nullptr) break;
    const Fields part(*object, fields.path(name, i), fields.error());
    const std::string type = part.required_text("type");
    if (type == "text" || type == "input_text" || type == "output_text") {
      text += part.required_text("text");
    } else if (type == "refusal") {
      text += part.required_text("refusal");
    } else {
      part.fail("type", fmt::format("{}: expected text, found '{}': {}", part.path("type"), type,
                                    kNoImages));
    }
  }
  return text;
}

const char kCustomToolSchema[] =
    R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"]})";

std::string custom_input(const std::string& arguments) {
  ApiError error;
  const auto object = parse_body(arguments, error);
  if (!object) return arguments;
  const Fields fields(*object, "", error);
  return fields.has("input") ? fields.text("input").value_or(arguments) : arguments;
}

std::string custom_arguments(const std::string& input) {
  JsonWriter json;
  return json.begin_object().member("input", input).end_object().take();
}

bool include_usage(const Fields& fields, bool stream) {
  const boost::json::object* options = fields.object("stream_options");
  if (options == nullptr) return false;
  if (!stream) {
    fields.fail("stream_options", "stream_options: has a meaning only with \"stream\": true");
    return false;
  }
  const Fields inner(*options, "stream_options", fields.error());
  return inner.flag("include_usage").value_or(false);
}

}  // namespace kapitsa::server::api
