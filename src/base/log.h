// Messages for the person who runs the program, one line each: log_info("loaded {} in {} s", ...).
// Nothing is formatted when the level is off. The sink is the only state: a program sets it once at
// start (by default lines of level info and above go to stderr), a test captures lines with it.
// Errors that a caller can handle are Results, not log lines.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace kapitsa {

enum class LogLevel { debug, info, warning, error, off };

const char* to_string(LogLevel level);

struct LogSink {
  // Receives one line without its newline; calls never overlap.
  void (*write)(void* context, LogLevel level, std::string_view line) = nullptr;
  void* context = nullptr;
  LogLevel lowest = LogLevel::info;
  bool timestamps = false;  // UTC, before the level
};

// Writes "kapitsa: level: message" to stderr.
LogSink stderr_log_sink();

// Returns the sink that was set before. Safe while other threads log: none of them uses the old
// sink once this has returned. A sink must not log.
LogSink set_log_sink(LogSink sink);

bool log_enabled(LogLevel level);
// Control characters become spaces, so that a message is one line.
void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(level)) return;
  fmt::memory_buffer message;
  fmt::format_to(fmt::appender(message), format, std::forward<Args>(args)...);
  log_message(level, {message.data(), message.size()});
}

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::debug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::warning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::error, format, std::forward<Args>(args)...);
}

}  // namespace kapitsa
