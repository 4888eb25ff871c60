// Text of files and users in error messages: short, on one line, in quotes.
#pragma once

#include <string>
#include <string_view>

namespace kapitsa::text {

// At most 60 bytes; control characters as \x0A.
std::string quoted(std::string_view text);

}  // namespace kapitsa::text
