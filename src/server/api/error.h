// What an API says when it refuses a request or fails, in the shape of each vendor's error body.
#pragma once

#include "base/result.h"
#include "server/http/message.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace kapitsa::server::api {

enum class Family : uint8_t { openai, anthropic };

// By the path: /v1/messages and what lies below is Anthropic's.
Family family_of(std::string_view path);

struct ApiError {
  int status = 0;             // HTTP; 0: no error
  std::string message;        // for people
  std::string code = {};      // OpenAI's `code`: "invalid_value"; empty: null
  std::string param = {};     // the JSON path of what is wrong; empty: null
  int32_t prompt_tokens = 0;  // of a prompt that is too long
  int32_t context = 0;
  int retry_after = 0;  // seconds; 0: not said

  explicit operator bool() const { return status != 0; }
};

ApiError invalid(std::string param, std::string message, std::string code = "invalid_value");
// An error of the engine; `prompt_tokens` counts for an overflow only.
ApiError engine_error(const Error& error, int32_t prompt_tokens, int32_t context);

// {"error": ...}; also what a stream says after it has begun.
std::string error_json(Family family, const ApiError& error, const std::string& request_id);
http::Response error_response(Family family, const ApiError& error, const std::string& request_id);
// The header that carries the id of the request.
const char* request_id_header(Family family);

}  // namespace kapitsa::server::api
