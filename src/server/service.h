// What the handlers of requests share: the engine once it is loaded, facts of the model, and
// counts. All of it may be used from any thread.
#pragma once

#include "server/api/call.h"
#include "server/request_log.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

namespace kapitsa::server {

using Clock = std::chrono::steady_clock;

struct Loaded {
  std::unique_ptr<Engine> engine;
  api::ModelFacts facts;
};

struct Service {
  std::function<void(const RequestRecord&)> log;
  int max_requests = 64;  // running and waiting
  std::chrono::milliseconds keep_alive_after{10'000};
  std::chrono::seconds stuck_after{300};  // requests open, and nothing from the engine

  Metrics metrics;
  const Clock::time_point started = Clock::now();
  std::atomic<int> open_requests{0};  // admitted and not ended
  std::atomic<bool> draining{false};  // no new ones
  std::atomic<bool> failed{false};    // the device failed, and nothing has worked since
  std::atomic<Clock::duration::rep> last_progress{0};  // of Clock, since its epoch

  // Set once; null before.
  void set(std::shared_ptr<Loaded> loaded) { loaded_.store(std::move(loaded)); }
  std::shared_ptr<Loaded> loaded() const { return loaded_.load(); }

  void progress() { last_progress = Clock::now().time_since_epoch().count(); }
  void record(const RequestRecord& record, bool with_line = true) {
    metrics.add(record);
    if (log && with_line) log(record);
  }

private:
  std::atomic<std::shared_ptr<Loaded>> loaded_;
};

// 24 hex digits, different each time.
std::string random_id();

}  // namespace kapitsa::server
