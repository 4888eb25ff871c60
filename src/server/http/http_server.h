// An HTTP/1.1 server on one address: accepts, reads requests within limits, hands each to the
// handler, writes what the handler answers, and notices at once when a client goes away. One I/O
// thread does all that; the handler is called on it and must be quick (Exchange::work is for what
// is not). It knows no API.
#pragma once

#include "base/result.h"
#include "server/http/exchange.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace kapitsa::server::http {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, not a name
  uint16_t port = 0;               // 0: one that is free
  int workers = 3;                 // threads of Exchange::work
  size_t max_header_bytes = size_t{64} << 10;
  size_t max_body_bytes = size_t{128} << 20;
  size_t max_connections = 512;
  std::chrono::milliseconds idle_timeout{120'000};  // for the next request's head to be complete
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds write_timeout{60'000};  // for a client that takes no bytes
};

struct HttpCallbacks {
  std::function<void(const std::shared_ptr<Exchange>&)> handler;
  // The reply to what is no proper request; the path is empty where it is not known.
  std::function<Response(int status, const std::string& message, const std::string& path)> refuse;
};

class HttpServer {
public:
  // Takes the address and starts to serve. A port in use is named in the error.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options,
                                                   HttpCallbacks callbacks);
  // Ends as stop(0) does.
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // Accepts no more, lets open answers end for at most so long, then closes what is left.
  virtual void stop(std::chrono::milliseconds drain) = 0;
  // Returns at SIGINT or SIGTERM, which from the call on no longer end the process; a second one
  // during stop() makes it give up waiting.
  virtual void wait_for_signal() = 0;
};

}  // namespace kapitsa::server::http
