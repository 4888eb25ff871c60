// Result<T>: a value, or an Error that says to a person what went wrong. For everything that the
// caller, a file, the network or the device can get wrong. An Error's message is one line: what,
// where, expected, found, and what to do. Reading the value of a failed Result is a programmer
// error and aborts.
#pragma once

#include "base/check.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace kapitsa {

enum class ErrorCode {
  invalid_argument,  // the caller's request or option is wrong
  not_found,         // a file, model or name does not exist
  io,                // the operating system refused a read, write or map
  corrupt_file,      // a file breaks its own format
  unsupported,       // valid, but not something this build does
  out_of_memory,     // host or device memory does not suffice
  context_overflow,  // more tokens than the context holds
  cancelled,         // stopped by the user or the client
  device_failed,     // the accelerator reported a fault
};

const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    KAPITSA_CHECK(ok(), error().message.c_str());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    KAPITSA_CHECK(ok(), error().message.c_str());
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    KAPITSA_CHECK(state_.index() == 1, "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }

private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    KAPITSA_CHECK(error_.has_value(), "error() of a Status that is ok");
    return *error_;
  }

private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace kapitsa

#define KAPITSA_CONCAT_INNER(a, b) a##b
#define KAPITSA_CONCAT(a, b) KAPITSA_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Status or a Result) from the enclosing function, if it has
// one.
#define KAPITSA_TRY(expression)                                                                    \
  do {                                                                                             \
    if (const auto& kapitsa_status = (expression); !kapitsa_status) return kapitsa_status.error(); \
  } while (false)

// KAPITSA_ASSIGN(auto x, f()): x = the value of f(), or return its error from the enclosing
// function.
#define KAPITSA_ASSIGN(target, expression)                                                         \
  KAPITSA_ASSIGN_INNER(KAPITSA_CONCAT(kapitsa_result_, __LINE__), target, expression)
#define KAPITSA_ASSIGN_INNER(result, target, expression)                                           \
  auto result = (expression);                                                                      \
  if (!result) return result.error();                                                              \
  target = std::move(*result)
