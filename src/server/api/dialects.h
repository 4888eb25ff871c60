// The dialects by their route.
#pragma once

#include "server/api/call.h"
#include "server/api/events.h"

#include <memory>
#include <string_view>

namespace kapitsa::server::api {

struct ParsedRequest {
  Call call;
  std::unique_ptr<Dialect> dialect;
};

// `route` is "/chat/completions", "/completions", "/responses" or "/messages"; `id` becomes part of
// the ids in the reply.
ParsedRequest parse_request(std::string_view route, std::string_view body, const ModelFacts& facts,
                            const std::string& id, ApiError& error);

// The body of /messages/count_tokens to its reply.
std::string count_tokens(const Engine& engine, const ModelFacts& facts, std::string_view body,
                         ApiError& error);

std::string version_json();

}  // namespace kapitsa::server::api
