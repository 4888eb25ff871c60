// Text from a file, made fit for a one-line error message.
#pragma once

#include <string>
#include <string_view>

namespace kapitsa::weights {

// The text in single quotes, control characters as \xNN, cut after 80 bytes.
std::string quote(std::string_view text);

}  // namespace kapitsa::weights
