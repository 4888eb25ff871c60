// Anthropic's messages: the body of a request to a Call, and answers to events or one object.
#pragma once

#include "server/api/call.h"
#include "server/api/events.h"

#include <boost/json/object.hpp>

#include <memory>

namespace kapitsa::server::api {

struct MessageReplyOptions {
  std::string id;
  std::string model;
  bool hide_thinking = false;  // blocks of thinking come without their text
};

// `counting`: for count_tokens, where max_tokens is not needed.
Call parse_messages(const boost::json::object& body, const ModelFacts& facts,
                    MessageReplyOptions& reply, bool counting, ApiError& error);
std::unique_ptr<Dialect> messages_dialect(MessageReplyOptions options);

}  // namespace kapitsa::server::api
