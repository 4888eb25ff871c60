// OpenAI's older completions API: text goes on from a text, without a chat template.
#pragma once

#include "server/api/call.h"
#include "server/api/events.h"

#include <boost/json/object.hpp>

#include <memory>

namespace kapitsa::server::api {

struct CompletionReplyOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  bool include_usage = false;
  bool logprobs = false;
  size_t n = 1;                   // answers to one prompt
  std::vector<std::string> echo;  // of each choice; an empty text is not repeated
};

Call parse_completion(const boost::json::object& body, const ModelFacts& facts,
                      CompletionReplyOptions& reply, ApiError& error);
std::unique_ptr<Dialect> completion_dialect(CompletionReplyOptions options);

}  // namespace kapitsa::server::api
