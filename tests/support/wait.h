// Waits for answers of an Engine: collects events until the last one, with a deadline that only a
// hang can reach.
#pragma once

#include "kapitsa/engine.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace kapitsa::test {

struct Answered {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TextDelta::Position> logprobs;
  std::optional<Finished> finished;
  std::string error;
  int n_endings = 0;
};

class Collector {
public:
  EventSink sink() {
    return [this](const Event& event) { take(event); };
  }

  void wait() {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, std::chrono::minutes(5), [&] { return answered_.n_endings > 0; })) {
      answered_.error = "no last event within five minutes";
    }
  }

  Answered answered() {
    const std::lock_guard lock(mutex_);
    return answered_;
  }

private:
  void take(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (const auto* delta = std::get_if<TextDelta>(&event)) {
      answered_.text += delta->text;
      answered_.tokens.insert(answered_.tokens.end(), delta->tokens.begin(), delta->tokens.end());
      answered_.logprobs.insert(answered_.logprobs.end(), delta->logprobs.begin(),
                                delta->logprobs.end());
    } else if (const auto* finished = std::get_if<Finished>(&event)) {
      answered_.finished = *finished;
      ++answered_.n_endings;
    } else if (const auto* failed = std::get_if<Failed>(&event)) {
      answered_.error = failed->error.message;
      ++answered_.n_endings;
    }
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  Answered answered_;
};

// Submits all, then waits for all.
inline std::vector<Answered> answer_all(Engine& engine, const std::vector<Request>& requests) {
  std::deque<Collector> collectors(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.submit(requests[i], collectors[i].sink());
    if (!id) collectors[i].sink()(Failed{id.error()});
  }
  std::vector<Answered> answers;
  for (Collector& collector : collectors) {
    collector.wait();
    answers.push_back(collector.answered());
  }
  return answers;
}

inline Answered answer(Engine& engine, const Request& request) {
  return answer_all(engine, {request}).front();
}

}  // namespace kapitsa::test
