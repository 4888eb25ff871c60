// The routes that tell about the server and the model, and those that turn text into tokens and
// back. Pure, except for what the engine does.
#pragma once

#include "server/api/call.h"

#include <map>
#include <optional>
#include <string>

namespace kapitsa::server::api {

// Both vendors' shapes in one.
std::string models_json(const ModelFacts& facts);
std::string model_json(const ModelFacts& facts);

// The other way: what models_json() of a server says.
struct ReadModel {
  std::string name;
  int32_t context = 0;
  bool reasoning = false;
};
Result<ReadModel> read_models(std::string_view json);

struct StatusFigures {
  double uptime_seconds = 0.0;
  int open_requests = 0;
  int max_requests = 0;
  std::string state;  // "loading", "ready", "draining", "stuck", "failed"
};
// `facts` is null while the model is loaded.
std::string status_json(const ModelFacts* facts, const StatusFigures& figures);
std::string health_json(const StatusFigures& figures);

// POST bodies to reply bodies.
std::string tokenize(const Engine& engine, const ModelFacts& facts, std::string_view body,
                     ApiError& error);
std::string detokenize(const Engine& engine, std::string_view body, ApiError& error);
std::string apply_template(const Engine& engine, const ModelFacts& facts, std::string_view body,
                           ApiError& error);

}  // namespace kapitsa::server::api
