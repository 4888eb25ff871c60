#include "base/json.h"

#include <boost/json/parse.hpp>
#include <boost/json/parser.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace kapitsa {
namespace {

// The end of the string that starts with the quote at `begin`, one past its closing quote.
size_t string_end(std::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return text.size();
}

// The first bytes of a long text, cut between code points.
std::string_view shortened(std::string_view text) {
  size_t n = std::min<size_t>(text.size(), 100);
  while (n < text.size() && n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80)
    --n;
  return text.substr(0, n);
}

// Members of all objects in a value, and in the text that it was read from.
size_t count_members(const boost::json::value& value) {
  size_t n = 0;
  if (const auto* object = value.if_object()) {
    n = object->size();
    for (const auto& member : *object)
      n += count_members(member.value());
  } else if (const auto* array = value.if_array()) {
    for (const auto& item : *array)
      n += count_members(item);
  }
  return n;
}
size_t count_members(std::string_view text) {
  size_t n = 0;
  for (size_t i = 0; i < text.size(); i = text[i] == '"' ? string_end(text, i) : i + 1)
    n += text[i] == ':' ? 1 : 0;
  return n;
}

struct RepeatedKey {
  size_t offset;
  std::string_view spelling;  // in the text, with its escapes, so that it has no line break
};

// The first key that an object of `text`, which is valid JSON, holds for the second time. Keys
// count as spelled after their escapes.
std::optional<RepeatedKey> repeated_key(std::string_view text) {
  std::vector<std::unordered_set<std::string>> open;  // keys of the objects around; arrays too
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '{' || c == '[') open.emplace_back();
    if (c == '}' || c == ']') open.pop_back();
    if (c != '"') {
      ++i;
      continue;
    }
    const size_t end = string_end(text, i);
    const size_t next = text.find_first_not_of(" \t\r\n", end);
    if (next != std::string_view::npos && text[next] == ':' && !open.empty()) {
      const std::string_view spelling = text.substr(i + 1, end - i - 2);
      std::string key(spelling);
      if (key.find('\\') != std::string::npos)
        key = boost::json::parse(text.substr(i, end - i)).as_string();
      if (!open.back().insert(key).second) return RepeatedKey{i, spelling};
    }
    i = end;
  }
  return std::nullopt;
}

}  // namespace

Result<boost::json::value> parse_json(std::string_view text, std::string_view source,
                                      JsonLimits limits) {
  if (text.size() > limits.max_bytes)
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: expected at most {} bytes of JSON, found {}", source,
                             limits.max_bytes, text.size())};
  const auto invalid = [&](size_t offset, std::string_view reason) {
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: offset {}: expected valid JSON, found an error: {}", source,
                             offset, reason)};
  };
  try {
    boost::json::parse_options options;
    options.max_depth = limits.max_depth;
    boost::json::parser parser({}, options);
    boost::system::error_code error;
    const size_t end = parser.write_some(text.data(), text.size(), error);
    if (error) return invalid(end, error.message());
    const size_t rest = text.find_first_not_of(" \t\r\n", end);
    if (rest != std::string_view::npos) return invalid(rest, "text after the end");
    boost::json::value value = parser.release();
    if (limits.unique_keys && count_members(value) != count_members(text)) {
      if (const auto repeated = repeated_key(text))
        return Error{ErrorCode::corrupt_file,
                     fmt::format("{}: offset {}: expected each key of an object once, found '{}' "
                                 "again",
                                 source, repeated->offset, shortened(repeated->spelling))};
    }
    return value;
  } catch (const std::exception& e) {
    return Error{ErrorCode::out_of_memory,
                 fmt::format("{}: cannot hold the JSON: {}", source, e.what())};
  }
}

}  // namespace kapitsa
