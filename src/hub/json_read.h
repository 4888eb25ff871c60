// Members of JSON values that come from outside, where any type may be anything.
#pragma once

#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::hub {

// nullptr when `value` is no object or has no such member.
inline const boost::json::value* member(const boost::json::value& value, std::string_view key) {
  const boost::json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

// Empty when the member is missing or no string.
inline std::string text_of(const boost::json::value& value, std::string_view key) {
  const boost::json::value* found = member(value, key);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

inline std::optional<int64_t> integer_of(const boost::json::value& value, std::string_view key) {
  const boost::json::value* found = member(value, key);
  if (found == nullptr || !found->is_int64()) return std::nullopt;
  return found->get_int64();
}

// nullptr when the member is missing or no array.
inline const boost::json::array* array_of(const boost::json::value& value, std::string_view key) {
  const boost::json::value* found = member(value, key);
  return found == nullptr ? nullptr : found->if_array();
}

}  // namespace kapitsa::hub
