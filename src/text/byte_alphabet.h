// The alphabet of byte-level BPE: every byte is written as one printable code point, so that
// vocabularies are valid text. Printable Latin-1 stands for itself; the other 68 bytes are
// U+0100, U+0101, ... in byte order (Radford et al. 2019, the GPT-2 encoder).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::text {

char32_t byte_to_alphabet(uint8_t byte);

// The bytes that `text` stands for; nullopt when a code point is outside the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace kapitsa::text
