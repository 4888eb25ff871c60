// Values as text, the way Python writes them: str(), repr(), json.dumps() and the % operator. Text
// made from a container is user text as a whole if any string in it is.
#pragma once

#include "base/result.h"
#include "text/jinja/value.h"

#include <optional>
#include <string>

namespace kapitsa::text::jinja {

// Shortest digits that read back the same, e.g. "1.0", "1e-05", "inf".
std::string real_repr(double value);

// Fails when the text would pass `max_bytes` or the nesting is too deep.
Result<Str> to_str(const Value& value, size_t max_bytes);

// json.dumps as the reference chat template environment calls it: no HTML escaping, key order kept.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Result<Str> to_json(const Value& value, const JsonStyle& style, size_t max_bytes);

// format % arguments; a tuple holds several arguments, a dict named ones.
Result<Str> percent_format(const Str& format, const Value& arguments, size_t max_bytes);

// format.format(*positional, **named).
struct Arguments;
Result<Str> brace_format(const Str& format, const Arguments& arguments, size_t max_bytes);

// Parses JSON text; strings and keys get the origin. Integers beyond 64 bits become floats.
Result<Value> parse_json(std::string_view json, Str::Origin origin);

}  // namespace kapitsa::text::jinja
