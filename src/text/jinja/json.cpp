// JSON text to template values through Boost.JSON, the only file here that includes it. Keeps the
// order of keys; refuses nesting above 100 levels and invalid UTF-8.
#include "text/jinja/format.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <exception>

namespace kapitsa::text::jinja {

namespace {

constexpr size_t kMaxJsonDepth = 100;

// Recursion is bounded by the parser's depth limit.
Value convert(const boost::json::value& json, Str::Origin origin) {
  const auto text = [origin](std::string_view s) { return Str(std::string(s), origin); };
  switch (json.kind()) {
  case boost::json::kind::null: return None{};
  case boost::json::kind::bool_: return json.get_bool();
  case boost::json::kind::int64: return json.get_int64();
  case boost::json::kind::uint64: return static_cast<double>(json.get_uint64());
  case boost::json::kind::double_: return json.get_double();
  case boost::json::kind::string: {
    const boost::json::string& s = json.get_string();
    return text({s.data(), s.size()});
  }
  case boost::json::kind::array: {
    std::vector<Value> items;
    items.reserve(json.get_array().size());
    for (const boost::json::value& item : json.get_array())
      items.push_back(convert(item, origin));
    return Value::list(std::move(items));
  }
  case boost::json::kind::object: {
    const Value dict = Value::dict();
    for (const auto& member : json.get_object())
      dict.as_dict()->set(text({member.key().data(), member.key().size()}),
                          convert(member.value(), origin));
    return dict;
  }
  }
  return None{};
}

}  // namespace

Result<Value> parse_json(std::string_view json, Str::Origin origin) {
  try {
    boost::json::parse_options options;
    options.max_depth = kMaxJsonDepth;
    boost::json::stream_parser parser({}, options);
    boost::json::error_code error;
    parser.write(json.data(), json.size(), error);
    if (!error) parser.finish(error);
    if (error)
      return Error{ErrorCode::invalid_argument, fmt::format("invalid JSON: {}", error.message())};
    return convert(parser.release(), origin);
  } catch (const std::exception& e) {
    return Error{ErrorCode::invalid_argument, fmt::format("invalid JSON: {}", e.what())};
  }
}

}  // namespace kapitsa::text::jinja
