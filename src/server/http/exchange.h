// One request and the answer to it, which may be whole or a stream. All functions may be called
// from any thread, and after the client has gone: then what is sent is dropped.
#pragma once

#include "server/http/message.h"

#include <chrono>
#include <functional>
#include <string>

namespace kapitsa::server::http {

struct Stream {
  std::string content_type = "text/event-stream";
  Headers headers;
  // After so long without a byte, what keep_alive returns is sent. It runs on the I/O thread.
  std::chrono::milliseconds keep_alive_after{10'000};
  std::function<std::string()> keep_alive;
};

class Exchange {
public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;

  // Runs the task on the I/O thread, in the order of the calls. It must be quick.
  virtual void post(std::function<void()> task) = 0;
  // Runs the task on a worker thread.
  virtual void work(std::function<void()> task) = 0;

  // Exactly one of the two. A stream goes on with send() and ends with end().
  virtual void respond(Response response) = 0;
  virtual void begin(Stream stream) = 0;
  virtual void send(std::string text) = 0;
  virtual void end() = 0;

  // The action runs once, on the I/O thread, when the client goes away before the answer is
  // complete, or the server gives up on it. At once if that has happened.
  virtual void on_closed(std::function<void()> action) = 0;
};

}  // namespace kapitsa::server::http
