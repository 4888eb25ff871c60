// White space is the Unicode property White_Space; word characters are Alphabetic, marks, decimal
// digits and connectors (UTS 18, annex C).
#include "text/unicode.h"

#include "text/utf8.h"

#include <utf8proc.h>

namespace kapitsa::text {

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC: return true;
  // Alphabetic symbols (circled letters) and the join controls.
  default: return (c >= 0x24B6 && c <= 0x24E9) || c == 0x200C || c == 0x200D;
  }
}

size_t leading_spaces(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Step step = utf8_decode(text, pos);
    if (!step.valid || !is_white_space(step.codepoint)) break;
    pos += step.length;
  }
  return pos;
}

size_t trailing_spaces(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80)
      --begin;
    const Utf8Step step = utf8_decode(text.substr(0, end), begin);
    if (!step.valid || begin + step.length != end || !is_white_space(step.codepoint)) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace kapitsa::text
