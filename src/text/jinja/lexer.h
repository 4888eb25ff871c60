// Template source to tokens, with the white-space rules of the reference environment: trim_blocks,
// lstrip_blocks, the '-' and '+' marks, one newline at the end of the source dropped.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::text::jinja {

enum class TokenKind : uint8_t {
  data,  // template text
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  real,
  op,  // text is the operator, e.g. "//"
  eof,
};

struct Token {
  TokenKind kind = TokenKind::eof;
  std::string text;
  int64_t integer = 0;
  double real = 0;
  int line = 1;
};

// An error that points into the template; `message` gets "template line N: " in front and is kept
// on one line.
Error template_error(int line, std::string_view message);

Result<std::vector<Token>> tokenize_template(std::string_view source);

}  // namespace kapitsa::text::jinja
