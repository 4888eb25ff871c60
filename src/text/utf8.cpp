// Decoding by the table of well-formed byte sequences (Unicode 15, table 3-7). Owns no state; the
// ranges of the second byte exclude overlong forms, surrogates and values above U+10FFFF.
#include "text/utf8.h"

namespace kapitsa::text {

namespace {

struct Lead {
  size_t length = 0;  // 0: not a lead byte
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Step utf8_decode(std::string_view text, size_t pos) {
  const auto first = static_cast<uint8_t>(text[pos]);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = classify(first);
  if (lead.length == 0) return {};
  char32_t codepoint = first & (0xFFu >> (lead.length + 1));
  for (size_t i = 1; i < lead.length; ++i) {
    if (pos + i == text.size()) return {kReplacement, i, false, true};
    const auto byte = static_cast<uint8_t>(text[pos + i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {kReplacement, i, false, false};
    codepoint = (codepoint << 6) | (byte & 0x3Fu);
  }
  return {codepoint, lead.length, true, false};
}

void utf8_append(std::string& out, char32_t codepoint) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (codepoint > 0x10FFFF || (codepoint >= 0xD800 && codepoint < 0xE000)) codepoint = kReplacement;
  if (codepoint < 0x80) {
    put(codepoint);
  } else if (codepoint < 0x800) {
    put(0xC0 | (codepoint >> 6));
    put(0x80 | (codepoint & 0x3F));
  } else if (codepoint < 0x10000) {
    put(0xE0 | (codepoint >> 12));
    put(0x80 | ((codepoint >> 6) & 0x3F));
    put(0x80 | (codepoint & 0x3F));
  } else {
    put(0xF0 | (codepoint >> 18));
    put(0x80 | ((codepoint >> 12) & 0x3F));
    put(0x80 | ((codepoint >> 6) & 0x3F));
    put(0x80 | (codepoint & 0x3F));
  }
}

size_t utf8_valid_prefix(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Utf8Step step = utf8_decode(text, pos);
    if (!step.valid) return pos;
    pos += step.length;
  }
  return pos;
}

}  // namespace kapitsa::text
