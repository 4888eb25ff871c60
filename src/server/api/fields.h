// Reading the members of a JSON object that a client sent. The first thing that is wrong is kept as
// the error, with its path, and everything after it reads as absent, so that a parser is a plain
// list of what it takes. null counts as absent; members that nobody asks for are ignored.
#pragma once

#include "server/api/error.h"

#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::server::api {

class Fields {
public:
  // `path` names the object in errors: "messages[2]"; empty for the body.
  Fields(const boost::json::object& object, std::string path, ApiError& error)
      : object_(object), path_(std::move(path)), error_(error) {}

  const boost::json::value* any(std::string_view name) const;
  bool has(std::string_view name) const { return any(name) != nullptr; }
  std::optional<std::string> text(std::string_view name) const;
  std::optional<bool> flag(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name, double low, double high) const;
  const boost::json::array* list(std::string_view name) const;
  const boost::json::object* object(std::string_view name) const;
  // One of the members of a list, which must be an object.
  const boost::json::object* element(const boost::json::array& list, std::string_view name,
                                     size_t i) const;

  std::string path(std::string_view name) const;
  std::string path(std::string_view name, size_t i) const;
  void fail(std::string_view name, std::string message, std::string code = "invalid_value") const;
  // Fails where it is there and not empty, false, 0 or one of the neutral texts.
  void refuse(std::string_view name, std::string_view why) const;
  // A text that must be there.
  std::string required_text(std::string_view name) const;

  ApiError& error() const { return error_; }
  bool ok() const { return error_.status == 0; }

private:
  void wrong(std::string_view name, std::string_view expected,
             const boost::json::value& found) const;

  const boost::json::object& object_;
  const std::string path_;
  ApiError& error_;
};

// The body of a request, which must be an object.
std::optional<boost::json::object> parse_body(std::string_view body, ApiError& error);

std::string_view view(const boost::json::string& text);
// The value as JSON text, members in their order.
std::string json_text(const boost::json::value& value);

}  // namespace kapitsa::server::api
