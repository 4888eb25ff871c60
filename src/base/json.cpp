#include "base/json.h"

#include <boost/json/parser.hpp>
#include <fmt/format.h>

#include <exception>

namespace kapitsa {

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
    return parser.release();
  } catch (const std::exception& e) {
    return Error{ErrorCode::out_of_memory,
                 fmt::format("{}: cannot hold the JSON: {}", source, e.what())};
  }
}

}  // namespace kapitsa
