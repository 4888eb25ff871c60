#include "weights/describe.h"

#include <fmt/format.h>

namespace kapitsa::weights {

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  if (text.size() > kLongest) out += "...";
  out += "'";
  return out;
}

}  // namespace kapitsa::weights
