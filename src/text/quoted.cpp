// See quoted.h.
#include "text/quoted.h"

#include <fmt/format.h>

namespace kapitsa::text {

std::string quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 60;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02X}", byte);
    else
      out += c;
  }
  return out + (text.size() > kMaxBytes ? "...'" : "'");
}

}  // namespace kapitsa::text
