// OpenAI's chat completions: the body of a request to a Call, and answers to chunks or one object.
#pragma once

#include "server/api/call.h"
#include "server/api/events.h"

#include <boost/json/object.hpp>

#include <memory>
#include <set>
#include <string>

namespace kapitsa::server::api {

// What the reply must repeat or add.
struct ChatReplyOptions {
  std::string id;  // hex digits
  std::string model;
  int64_t created = 0;  // Unix time, seconds
  bool include_usage = false;
  bool logprobs = false;
  size_t choices = 1;
  std::set<std::string> custom_tools = {};  // called with plain text
};

Call parse_chat(const boost::json::object& body, const ModelFacts& facts, ChatReplyOptions& reply,
                ApiError& error);
// Messages alone, for /apply-template and /tokenize.
ChatPrompt parse_chat_prompt(const boost::json::object& body, const ModelFacts& facts, Call& call,
                             ApiError& error);
std::unique_ptr<Dialect> chat_dialect(ChatReplyOptions options);

}  // namespace kapitsa::server::api
