// Reading JSON from files that may be hostile: size and depth are limited, errors name the source
// and the offset, and no exception of the library leaves. Integers beyond 64 bits become doubles.
// Of a key that an object holds twice, the last value counts, unless that is refused.
#pragma once

#include "base/result.h"

#include <boost/json/value.hpp>

#include <cstddef>
#include <string_view>

namespace kapitsa {

struct JsonLimits {
  size_t max_depth = 32;
  size_t max_bytes = size_t{64} << 20;
  bool unique_keys = false;
};

// `source` is the name of the file or document in error messages.
Result<boost::json::value> parse_json(std::string_view text, std::string_view source,
                                      JsonLimits limits = {});

}  // namespace kapitsa
