#include "base/json_write.h"

#include "base/check.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace kapitsa {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What the first byte of a UTF-8 sequence says: its length and the range of the second byte
// (Unicode 15, table 3-7). Length 0: no sequence begins so.
struct Lead {
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Bytes of the valid sequence at `pos`, or minus the bytes that one U+FFFD stands for.
int sequence_at(std::string_view text, size_t pos) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[pos]));
  if (lead.length == 0) return -1;
  for (size_t i = 1; i < lead.length; ++i) {
    if (pos + i >= text.size()) return -static_cast<int>(i);
    const auto byte = static_cast<uint8_t>(text[pos + i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return -static_cast<int>(i);
  }
  return static_cast<int>(lead.length);
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
  case '"': out += "\\\""; return;
  case '\\': out += "\\\\"; return;
  case '\n': out += "\\n"; return;
  case '\r': out += "\\r"; return;
  case '\t': out += "\\t"; return;
  default: break;
  }
  const auto byte = static_cast<uint8_t>(c);
  if (byte >= 0x20 && byte != 0x7F) {
    out += c;
    return;
  }
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const int length = sequence_at(text, pos);
    if (length == 1) {
      append_escaped(out, text[pos]);
    } else if (length > 0) {
      out += text.substr(pos, static_cast<size_t>(length));
    } else {
      out += kReplacement;
    }
    pos += static_cast<size_t>(std::abs(length));
  }
  out += '"';
}

template <typename Number>
void append_number(std::string& out, Number number) {
  char buffer[32];  // the shortest form of a double has at most 24 characters
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, number);
  out.append(buffer, result.ptr);
}

}  // namespace

void JsonWriter::new_line() {
  if (indent_ == 0) return;
  text_ += '\n';
  text_.append(open_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::begin_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  KAPITSA_CHECK(open_.empty() || open_.back() == '[', "a member of a JSON object needs a key");
  KAPITSA_CHECK(!open_.empty() || text_.empty(), "a JSON text is one value");
  if (open_.empty()) return;
  if (!first_) text_ += ',';
  new_line();
  first_ = false;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  KAPITSA_CHECK(!open_.empty() && open_.back() == '{' && !after_key_, "a JSON key out of place");
  if (!first_) text_ += ',';
  new_line();
  first_ = false;
  append_string(text_, name);
  text_ += indent_ == 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin(char opening) {
  begin_value();
  text_ += opening;
  open_ += opening;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::end(char opening, char closing) {
  KAPITSA_CHECK(!open_.empty() && open_.back() == opening && !after_key_,
                "the end of a JSON object or array out of place");
  open_.pop_back();
  if (!first_) new_line();
  text_ += closing;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::begin_object() {
  return begin('{');
}
JsonWriter& JsonWriter::end_object() {
  return end('{', '}');
}
JsonWriter& JsonWriter::begin_array() {
  return begin('[');
}
JsonWriter& JsonWriter::end_array() {
  return end('[', ']');
}

JsonWriter& JsonWriter::value(std::string_view text) {
  begin_value();
  append_string(text_, text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  begin_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::value(bool truth) {
  return raw(truth ? "true" : "false");
}

JsonWriter& JsonWriter::integer(int64_t number) {
  begin_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::natural(uint64_t number) {
  begin_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::null() {
  return raw("null");
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  begin_value();
  text_ += json;
  return *this;
}

std::string JsonWriter::take() {
  KAPITSA_CHECK(open_.empty() && !text_.empty(), "an unfinished JSON text");
  first_ = true;
  return std::exchange(text_, {});
}

std::string json_string(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

}  // namespace kapitsa
