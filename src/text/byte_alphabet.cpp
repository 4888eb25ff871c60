// Both directions of the byte alphabet as tables that are built at compile time. Does not know
// about tokens.
#include "text/byte_alphabet.h"

#include "text/utf8.h"

#include <array>

namespace kapitsa::text {

namespace {

constexpr int kAlphabetEnd = 256 + 68;  // code points of the alphabet are below this

struct Tables {
  std::array<char32_t, 256> forward{};
  std::array<int16_t, kAlphabetEnd> backward{};  // -1: not in the alphabet
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& entry : tables.backward)
    entry = -1;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    const char32_t codepoint = printable ? static_cast<char32_t>(byte) : next++;
    tables.forward[static_cast<size_t>(byte)] = codepoint;
    tables.backward[codepoint] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_to_alphabet(uint8_t byte) {
  return kTables.forward[byte];
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_decode(text, pos);
    if (!step.valid || step.codepoint >= kAlphabetEnd) return std::nullopt;
    const int16_t byte = kTables.backward[step.codepoint];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    pos += step.length;
  }
  return bytes;
}

}  // namespace kapitsa::text
