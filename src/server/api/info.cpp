#include "server/api/info.h"

#include "base/json_write.h"
#include "base/version.h"
#include "server/api/fields.h"
#include "server/api/openai_chat.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace kapitsa::server::api {
namespace {

void write_model(JsonWriter& json, const ModelFacts& facts) {
  const ModelInfo& info = facts.info;
  json.begin_object().member("id", facts.name).member("object", "model");
  json.member("created", facts.created).member("owned_by", "kapitsa");
  json.member("type", "model").member("display_name", info.name);
  json.member("created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                        fmt::gmtime(static_cast<std::time_t>(facts.created))));
  json.member("context_length", info.context).member("max_model_len", info.context);
  json.member("max_output_tokens", info.context - 1);
  json.key("input_modalities").begin_array().value("text").end_array();
  json.key("output_modalities").begin_array().value("text").end_array();
  json.key("capabilities").begin_object();
  json.member("chat", info.has_chat_template);
  json.member("tools", facts.format.tools != text::ToolStyle::none);
  json.member("reasoning", !facts.format.reasoning_begin.empty());
  json.end_object().end_object();
}

}  // namespace

std::string models_json(const ModelFacts& facts) {
  JsonWriter json;
  json.begin_object().member("object", "list").key("data").begin_array();
  write_model(json, facts);
  json.end_array().member("has_more", false);
  json.member("first_id", facts.name).member("last_id", facts.name);
  return json.end_object().take();
}

std::string model_json(const ModelFacts& facts) {
  JsonWriter json;
  write_model(json, facts);
  return json.take();
}

Result<ReadModel> read_models(std::string_view json) {
  ApiError error;
  ReadModel model;
  if (const auto object = parse_body(json, error)) {
    const Fields fields(*object, "", error);
    const boost::json::array* list = fields.list("data");
    const boost::json::object* first =
        list != nullptr && !list->empty() ? fields.element(*list, "data", 0) : nullptr;
    if (first != nullptr) {
      const Fields entry(*first, "data[0]", error);
      model.name = entry.required_text("id");
      model.context =
          static_cast<int32_t>(entry.integer("context_length", 0, INT32_MAX).value_or(0));
      if (const boost::json::object* can = entry.object("capabilities"))
        model.reasoning =
            Fields(*can, "data[0].capabilities", error).flag("reasoning").value_or(false);
    }
  }
  if (error || model.name.empty() || model.context == 0)
    return Error{ErrorCode::unsupported, "this is not a Kapitsa server"};
  return model;
}

std::string status_json(const ModelFacts* facts, const StatusFigures& figures) {
  JsonWriter json;
  json.begin_object().member("state", figures.state).member("version", kVersion);
  json.member("uptime_seconds", figures.uptime_seconds);
  json.key("requests").begin_object().member("open", figures.open_requests);
  json.member("limit", figures.max_requests).end_object();
  json.key("model");
  if (facts == nullptr) return json.null().end_object().take();
  const ModelInfo& info = facts->info;
  json.begin_object().member("id", facts->name).member("name", info.name);
  json.member("architecture", info.architecture).member("quantisation", info.quantisation);
  json.member("backend", info.backend).member("parameters", info.n_parameters);
  json.member("file_bytes", info.file_bytes).member("memory_bytes", info.memory_bytes);
  json.member("context", info.context).member("context_trained", info.context_trained);
  json.member("tools", text::to_string(facts->format.tools));
  json.member("reasoning", !facts->format.reasoning_begin.empty());
  return json.end_object().end_object().take();
}

std::string health_json(const StatusFigures& figures) {
  JsonWriter json;
  json.begin_object().member("status", figures.state == "ready" ? "ok" : figures.state);
  return json.end_object().take();
}

std::string tokenize(const Engine& engine, const ModelFacts& facts, std::string_view body,
                     ApiError& error) {
  const auto object = parse_body(body, error);
  if (!object) return "";
  const Fields fields(*object, "", error);
  Result<std::vector<int32_t>> tokens = std::vector<int32_t>();
  if (fields.has("messages")) {
    Call call;
    const ChatPrompt prompt = parse_chat_prompt(*object, facts, call, error);
    if (fields.ok()) tokens = engine.tokenise(prompt);
  } else {
    const TextPrompt prompt{.text = fields.required_text("content"),
                            .parse_special = fields.flag("parse_special").value_or(true)};
    if (fields.ok() && !prompt.text.empty()) tokens = engine.tokenise(prompt);
  }
  if (!tokens) error = engine_error(tokens.error(), 0, 0);
  if (error) return "";
  JsonWriter json;
  json.begin_object().key("tokens").begin_array();
  for (const int32_t token : *tokens)
    json.value(token);
  return json.end_array().end_object().take();
}

std::string detokenize(const Engine& engine, std::string_view body, ApiError& error) {
  const auto object = parse_body(body, error);
  if (!object) return "";
  const Fields fields(*object, "", error);
  std::vector<int32_t> tokens;
  if (const boost::json::array* list = fields.list("tokens")) {
    for (const auto& item : *list) {
      const int64_t* id = item.if_int64();
      if (id == nullptr || *id < 0 || *id > INT32_MAX) {
        fields.fail("tokens", "tokens: expected a list of token ids");
        return "";
      }
      tokens.push_back(static_cast<int32_t>(*id));
    }
  } else {
    fields.fail("tokens", "tokens: expected a list of token ids, found none",
                "missing_required_parameter");
    return "";
  }
  const auto text = engine.detokenise(tokens);
  if (!text) {
    error = engine_error(text.error(), 0, 0);
    return "";
  }
  JsonWriter json;
  return json.begin_object().member("content", *text).end_object().take();
}

std::string apply_template(const Engine& engine, const ModelFacts& facts, std::string_view body,
                           ApiError& error) {
  const auto object = parse_body(body, error);
  if (!object) return "";
  Call call;
  const ChatPrompt prompt = parse_chat_prompt(*object, facts, call, error);
  if (error) return "";
  const auto text = engine.render(prompt);
  if (!text) {
    error = engine_error(text.error(), 0, 0);
    return "";
  }
  JsonWriter json;
  return json.begin_object().member("prompt", *text).end_object().take();
}

}  // namespace kapitsa::server::api
