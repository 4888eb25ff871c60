// A server of one model: answers on its address from start() on (that it loads, until serve()),
// logs each request, and ends in order at a signal.
#pragma once

#include "kapitsa/engine.h"
#include "server/request_log.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kapitsa::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: one that is free
  std::string api_key;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  int max_requests = 64;  // running and waiting
  std::chrono::milliseconds keep_alive_after{10'000};
  std::function<void(const RequestRecord&)> log;  // of each request at its end, from any thread
};

class Server {
public:
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // From now on requests are answered, by the model under this name.
  virtual void serve(std::unique_ptr<Engine> engine, const std::string& name) = 0;
  virtual void wait_for_signal() = 0;
  // Open answers may end for so long.
  virtual void stop(std::chrono::milliseconds drain) = 0;
};

// What a server's /v1/models says, for programs that use one.
struct ServedModel {
  std::string name = {};
  int32_t context = 0;  // tokens
  bool reasoning = false;
};
Result<ServedModel> read_models(const std::string& json);
// Whether the model thinks aloud before it answers.
bool reasons(const ModelInfo& model);

}  // namespace kapitsa::server
