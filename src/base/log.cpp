// One mutex guards the sink and the call of it; the lowest level is also an atomic, so that a line
// that nobody wants costs one load.
#include "base/log.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <utility>

namespace kapitsa {
namespace {

void write_to_stderr(void*, LogLevel, std::string_view line) {
  // One call per line, so that lines of several processes do not mix.
  fmt::memory_buffer out;
  fmt::format_to(fmt::appender(out), "kapitsa: {}\n", line);
  std::fwrite(out.data(), 1, out.size(), stderr);
}

struct State {
  std::mutex mutex;
  LogSink sink = stderr_log_sink();
  std::atomic<LogLevel> lowest = sink.lowest;
};

State& state() {
  static State instance;
  return instance;
}

void append_timestamp(fmt::memory_buffer& line) {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(now - seconds);
  fmt::format_to(fmt::appender(line), "{:%Y-%m-%dT%H:%M:%S}.{:03}Z ",
                 fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), millis.count());
}

}  // namespace

const char* to_string(LogLevel level) {
  switch (level) {
  case LogLevel::debug: return "debug";
  case LogLevel::info: return "info";
  case LogLevel::warning: return "warning";
  case LogLevel::error: return "error";
  case LogLevel::off: return "off";
  }
  return "unknown";
}

LogSink stderr_log_sink() {
  return {.write = write_to_stderr};
}

LogSink set_log_sink(LogSink sink) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.lowest.store(sink.write == nullptr ? LogLevel::off : sink.lowest, std::memory_order_relaxed);
  return std::exchange(s.sink, sink);
}

bool log_enabled(LogLevel level) {
  return level != LogLevel::off && level >= state().lowest.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  // The sink may have changed since the caller asked whether the level is on.
  if (s.sink.write == nullptr || level < s.sink.lowest || level == LogLevel::off) return;
  fmt::memory_buffer line;
  if (s.sink.timestamps) append_timestamp(line);
  fmt::format_to(fmt::appender(line), "{}: ", to_string(level));
  std::transform(message.begin(), message.end(), std::back_inserter(line),
                 [](char c) { return static_cast<unsigned char>(c) < 0x20 ? ' ' : c; });
  s.sink.write(s.sink.context, level, {line.data(), line.size()});
}

}  // namespace kapitsa
