// OpenAI's responses API: items in, items out. Nothing is stored between requests.
#pragma once

#include "server/api/call.h"
#include "server/api/events.h"

#include <boost/json/object.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>

namespace kapitsa::server::api {

struct ResponseReplyOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  // Members of the request that the response repeats: name -> JSON text.
  std::vector<std::pair<std::string, std::string>> echo;
  bool encrypted_reasoning = false;    // asked for; the "encryption" can be read by anyone
  std::set<std::string> custom_tools;  // called with plain text
  std::map<std::string, std::string> namespaces;  // tool -> the namespace it was given in
};

Call parse_response(const boost::json::object& body, const ModelFacts& facts,
                    ResponseReplyOptions& reply, ApiError& error);
std::unique_ptr<Dialect> response_dialect(ResponseReplyOptions options);

}  // namespace kapitsa::server::api
