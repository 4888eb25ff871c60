// What is told of each request when it has ended: one line, as text or as JSON, and the sums that
// /metrics shows. Pure, except that Metrics counts.
#pragma once

#include "kapitsa/engine.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace kapitsa::server {

struct RequestRecord {
  std::string id;
  std::string method;
  std::string path;
  int status = 0;
  double seconds = 0.0;
  // Of a request that the engine answers.
  bool generated = false;
  bool stream = false;
  std::string model;
  std::string ending;  // "stop", "length", "tool_calls", "cancelled", "failed"
  int32_t prompt_tokens = 0;
  int32_t prompt_done = 0;  // of them read
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  double queue_seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  std::string error;  // its message
};

std::string record_text(const RequestRecord& record);
std::string record_json(const RequestRecord& record);

// Counters since the start, for any thread.
class Metrics {
public:
  void add(const RequestRecord& record);
  // In the text format of Prometheus, with the gauges that the caller knows.
  std::string text(const std::map<std::string, double>& gauges) const;

private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;  // (path, status)
  std::map<std::string, double> sums_;
};

}  // namespace kapitsa::server
