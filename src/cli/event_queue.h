// Takes an engine's events to the main thread.
#pragma once

#include "kapitsa/engine.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace kapitsa::cli {

class EventQueue {
public:
  void push(const Event& event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    }
    ready_.notify_one();
  }

  // The next event, or nullopt when none came within `patience`.
  std::optional<Event> pop(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!ready_.wait_for(lock, patience, [&] { return !events_.empty(); })) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
};

}  // namespace kapitsa::cli
