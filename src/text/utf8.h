// UTF-8 one code point at a time, over bytes that may be invalid. Nothing here allocates or fails:
// an invalid byte decodes as a single step that says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kapitsa::text {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Utf8Step {
  char32_t codepoint = kReplacement;
  size_t length = 1;       // bytes to advance, at least 1
  bool valid = false;      // a whole code point
  bool truncated = false;  // not valid, but more bytes after the end of the text could complete it
};

// Decodes at `pos` < text.size(). For invalid input, `length` covers the longest start of a code
// point (Unicode 15, section 3.9, "maximal subpart"), which is what one U+FFFD replaces.
Utf8Step utf8_decode(std::string_view text, size_t pos);

// Code points above U+10FFFF and surrogates become U+FFFD.
void utf8_append(std::string& out, char32_t codepoint);

// First position that does not start a valid code point; text.size() when all is valid.
size_t utf8_valid_prefix(std::string_view text, size_t pos = 0);
inline bool utf8_valid(std::string_view text) {
  return utf8_valid_prefix(text) == text.size();
}

}  // namespace kapitsa::text
