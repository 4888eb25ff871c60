#include "server/api/dialects.h"

#include "base/json_write.h"
#include "base/version.h"
#include "server/api/anthropic_messages.h"
#include "server/api/fields.h"
#include "server/api/openai_chat.h"
#include "server/api/openai_completions.h"
#include "server/api/openai_responses.h"

#include <chrono>

namespace kapitsa::server::api {
namespace {

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ParsedRequest parse_request(std::string_view route, std::string_view body, const ModelFacts& facts,
                            const std::string& id, ApiError& error) {
  ParsedRequest request;
  const auto object = parse_body(body, error);
  if (!object) return request;
  if (route == "/chat/completions") {
    ChatReplyOptions reply{.id = id, .created = unix_now()};
    request.call = parse_chat(*object, facts, reply, error);
    request.dialect = chat_dialect(std::move(reply));
  } else if (route == "/completions") {
    CompletionReplyOptions reply{.id = id, .created = unix_now()};
    request.call = parse_completion(*object, facts, reply, error);
    request.dialect = completion_dialect(std::move(reply));
  } else if (route == "/responses") {
    ResponseReplyOptions reply{.id = id, .created = unix_now()};
    request.call = parse_response(*object, facts, reply, error);
    request.dialect = response_dialect(std::move(reply));
  } else {
    MessageReplyOptions reply{.id = id};
    request.call = parse_messages(*object, facts, reply, false, error);
    request.dialect = messages_dialect(std::move(reply));
  }
  return request;
}

std::string count_tokens(const Engine& engine, const ModelFacts& facts, std::string_view body,
                         ApiError& error) {
  const auto object = parse_body(body, error);
  if (!object) return "";
  MessageReplyOptions reply;
  const Call call = parse_messages(*object, facts, reply, true, error);
  if (error) return "";
  const auto tokens = engine.tokenise(std::get<ChatPrompt>(call.requests.front().prompt));
  if (!tokens) {
    error = engine_error(tokens.error(), 0, 0);
    return "";
  }
  JsonWriter json;
  return json.begin_object().member("input_tokens", tokens->size()).end_object().take();
}

std::string version_json() {
  JsonWriter json;
  json.begin_object().member("version", kVersion).member("commit", kCommit);
  return json.end_object().take();
}

}  // namespace kapitsa::server::api
