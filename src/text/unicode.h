// Classes of code points, as the regex engines of the reference tokenizers define them.
#pragma once

#include <cstddef>
#include <string_view>

namespace kapitsa::text {

bool is_white_space(char32_t codepoint);  // \s
bool is_word(char32_t codepoint);         // \w

// Bytes of white space at the start and at the end; an invalid byte is not white space.
size_t leading_spaces(std::string_view text);
size_t trailing_spaces(std::string_view text);

}  // namespace kapitsa::text
