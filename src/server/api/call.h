// What a request of any dialect becomes: one request to the engine for each answer that it wants,
// and how the answers are to be read and written.
#pragma once

#include "kapitsa/engine.h"
#include "server/api/error.h"
#include "text/output_parser.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace kapitsa::server::api {

// What the dialects need to know about the model.
struct ModelFacts {
  std::string name;  // as it is served
  ModelInfo info;
  text::OutputFormat format;
  // What the chat template takes; what it does not is put another way (api/messages.h).
  bool system_role = true;
  bool system_later = true;     // after the first message
  bool same_role_twice = true;  // two users in a row
  bool tool_role = true;
  int64_t created = 0;  // Unix time, seconds
};

struct Call {
  std::string model;  // as the client named it
  bool stream = false;
  bool chat = true;  // answers are split into reasoning, content and calls
  bool parse_tools = false;
  bool one_call_only = false;
  std::vector<Request> requests;       // one for each answer
  std::set<std::string> custom_tools;  // called with plain text
  // (tool, parameter) -> JSON type, for formats that write parameters as bare text.
  std::map<std::pair<std::string, std::string>, std::string> parameter_types;
};

}  // namespace kapitsa::server::api
