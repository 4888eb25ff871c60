#include "server/api/error.h"

#include "base/json_write.h"

#include <fmt/format.h>

namespace kapitsa::server::api {
namespace {

const char* openai_type(int status) {
  switch (status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 429: return "rate_limit_error";
  default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 404: return "not_found_error";
  case 413: return "request_too_large";
  case 429: return "rate_limit_error";
  case 503:
  case 529: return "overloaded_error";
  default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Clients compact a conversation when they know the wording of the vendor.
std::string overflow_message(Family family, const ApiError& error) {
  if (family == Family::anthropic)
    return fmt::format("prompt is too long: {} tokens > {} maximum", error.prompt_tokens,
                       error.context - 1);
  return fmt::format("request ({} tokens) exceeds the available context size ({} tokens); maximum "
                     "context length is {} tokens",
                     error.prompt_tokens, error.context, error.context);
}

void text_or_null(JsonWriter& json, const char* name, const std::string& text) {
  json.key(name);
  if (text.empty()) {
    json.null();
  } else {
    json.value(text);
  }
}

}  // namespace

Family family_of(std::string_view path) {
  return path.find("/messages") != path.npos ? Family::anthropic : Family::openai;
}

ApiError invalid(std::string param, std::string message, std::string code) {
  return {.status = 400,
          .message = std::move(message),
          .code = std::move(code),
          .param = std::move(param)};
}

ApiError engine_error(const Error& error, int32_t prompt_tokens, int32_t context) {
  ApiError result{.status = 500, .message = error.message};
  switch (error.code) {
  case ErrorCode::invalid_argument:
  case ErrorCode::unsupported:
  case ErrorCode::corrupt_file:  // JSON or a template that refuses the conversation
  case ErrorCode::not_found: result.status = 400; break;
  case ErrorCode::context_overflow:
    result = {.status = 400, .message = error.message, .code = "context_length_exceeded"};
    result.prompt_tokens = prompt_tokens;
    result.context = context;
    break;
  case ErrorCode::device_failed:
    result.status = 503;
    result.code = "engine_recovering";
    result.retry_after = 5;
    break;
  default: break;
  }
  return result;
}

std::string error_json(Family family, const ApiError& error, const std::string& request_id) {
  const bool overflow = error.code == "context_length_exceeded" && error.context > 0;
  const std::string message = overflow ? overflow_message(family, error) : error.message;
  JsonWriter json;
  json.begin_object();
  if (family == Family::anthropic) json.member("type", "error");
  json.key("error").begin_object();
  if (family == Family::anthropic) {
    json.member("type", anthropic_type(error.status)).member("message", message).end_object();
    json.member("request_id", request_id);
    return json.end_object().take();
  }
  json.member("message", message).member("type", openai_type(error.status));
  text_or_null(json, "param", error.param);
  text_or_null(json, "code", error.code);
  if (overflow) json.member("n_prompt_tokens", error.prompt_tokens).member("n_ctx", error.context);
  return json.end_object().end_object().take();
}

http::Response error_response(Family family, const ApiError& error, const std::string& request_id) {
  http::Response response{.status = error.status};
  if (family == Family::anthropic && error.status == 429) response.status = 529;
  response.headers = {{request_id_header(family), request_id}};
  if (error.retry_after > 0)
    response.headers.emplace_back("retry-after", std::to_string(error.retry_after));
  // A client that repeats what is certain to fail again only waits longer.
  if (error.status == 500) response.headers.emplace_back("x-should-retry", "false");
  response.body = error_json(family, error, request_id);
  return response;
}

const char* request_id_header(Family family) {
  return family == Family::anthropic ? "request-id" : "x-request-id";
}

}  // namespace kapitsa::server::api
