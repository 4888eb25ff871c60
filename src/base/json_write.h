// Writing JSON piece by piece: escaping, commas and the shortest text of a number that reads back
// as the same number. Bytes that are not UTF-8 become U+FFFD and numbers that JSON does not have
// (NaN, infinities) become null, so that the text is always valid. A call out of place (a member
// value without its key, an end without a begin) is a programmer error.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace kapitsa {

class JsonWriter {
public:
  // indent 0: one line, without spaces; else spaces for each level, and a newline for each element.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  JsonWriter& value(bool truth);
  template <std::integral Integer>
  JsonWriter& value(Integer number) {
    if constexpr (std::signed_integral<Integer>) return integer(number);
    return natural(static_cast<uint64_t>(number));
  }
  JsonWriter& null();
  // Text that is one JSON value already.
  JsonWriter& raw(std::string_view json);

  template <typename T>
  JsonWriter& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  // The finished text; every object and array must have ended.
  std::string take();

private:
  JsonWriter& integer(int64_t number);
  JsonWriter& natural(uint64_t number);
  JsonWriter& begin(char opening);
  JsonWriter& end(char opening, char closing);
  void begin_value();
  void new_line();

  std::string text_;
  std::string open_;  // '{' or '[' of everything that has not ended
  int indent_;
  bool first_ = true;  // no element yet in the innermost one
  bool after_key_ = false;
};

// The text as a JSON string, with its quotes.
std::string json_string(std::string_view text);

}  // namespace kapitsa
