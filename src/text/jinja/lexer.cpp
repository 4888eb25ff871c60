// Two levels: template text up to the next tag, and the expression tokens inside a tag. A closing
// brace of a tag counts only outside of brackets, so that {{ {'a': {}} }} works.
#include "text/jinja/lexer.h"

#include "text/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace kapitsa::text::jinja {

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// One newline style, and without the last newline.
std::string normalise_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
public:
  explicit Lexer(std::string_view source)
      : normalised_(normalise_newlines(source)), source_(normalised_) {}

  Result<std::vector<Token>> run() {
    while (pos_ < source_.size())
      KAPITSA_TRY(root());
    add(TokenKind::eof);
    return std::move(tokens_);
  }

private:
  bool at(std::string_view what) const { return source_.substr(pos_).starts_with(what); }
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0';
  }
  void advance(size_t n) {
    n = std::min(n, source_.size() - pos_);
    const std::string_view part = source_.substr(pos_, n);
    line_ += static_cast<int>(std::count(part.begin(), part.end(), '\n'));
    pos_ += n;
    // The reference strips before a tag when the last thing consumed ended a line.
    if (n > 0) line_starting_ = part.back() == '\n';
  }
  void skip_spaces() {
    size_t n = 0;
    while (is_space(peek(n)))
      ++n;
    advance(n);
  }
  Token& add(TokenKind kind, std::string_view text = {}) {
    tokens_.push_back({kind, std::string(text), 0, 0, line_});
    return tokens_.back();
  }

  // Adds template text, shortened at its end as the tag that follows wants it.
  void add_data(std::string_view text, int line, char sign, bool is_block, bool line_starting) {
    if (sign == '-') {
      while (!text.empty() && is_space(text.back()))
        text.remove_suffix(1);
    } else if (sign != '+' && is_block) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view last = text.substr(line_start);
      if ((line_start > 0 || line_starting) && std::all_of(last.begin(), last.end(), is_space))
        text = text.substr(0, line_start);
    }
    if (text.empty()) return;
    tokens_.push_back({TokenKind::data, std::string(text), 0, 0, line});
  }

  // Text up to the next tag, and that tag.
  Status root() {
    size_t tag = pos_;
    while ((tag = source_.find('{', tag)) != std::string_view::npos) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      add_data(source_.substr(pos_), line_, '+', false, false);
      advance(source_.size() - pos_);
      return {};
    }
    const std::string_view text = source_.substr(pos_, tag - pos_);
    const char type = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const bool has_sign = sign != '\0';
    add_data(text, line_, sign, type != '{', line_starting_);
    advance(text.size() + 2 + (has_sign ? 1 : 0));
    if (type == '#') return comment();
    if (type == '{') {
      add(TokenKind::variable_begin);
      return expression(TokenKind::variable_end, "}}");
    }
    if (const size_t length = raw_tag_length("raw"); length > 0) return raw(length);
    add(TokenKind::block_begin);
    return expression(TokenKind::block_end, "%}");
  }

  // After the end of a block or comment: '-' eats all space, '+' nothing, else one newline goes.
  void end_tag(char sign) {
    if (sign == '-')
      skip_spaces();
    else if (sign != '+' && peek() == '\n')
      advance(1);
  }

  Status comment() {
    const int line = line_;
    const size_t end = source_.find("#}", pos_);
    if (end == std::string_view::npos) return template_error(line, "missing end of comment tag");
    const char before = end > pos_ ? source_[end - 1] : '\0';
    advance(end + 2 - pos_);
    end_tag(before);
    return {};
  }

  // Length of "name -%}" at the current place, 0 if something else stands here.
  size_t raw_tag_length(std::string_view name) const {
    size_t i = pos_;
    const auto spaces = [&] {
      while (i < source_.size() && is_space(source_[i]))
        ++i;
    };
    spaces();
    if (!source_.substr(i).starts_with(name)) return 0;
    i += name.size();
    spaces();
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    return source_.substr(i).starts_with("%}") ? i + 2 - pos_ : 0;
  }

  Status raw(size_t tag_length) {
    const int line = line_;
    advance(tag_length);
    if (source_[pos_ - 3] == '-') skip_spaces();
    const size_t begin = pos_;
    const int text_line = line_;
    const bool line_starting = line_starting_;
    for (size_t tag = source_.find("{%", pos_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      advance(tag + 2 - pos_);
      const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
      if (sign) advance(1);
      const size_t length = raw_tag_length("endraw");
      if (length == 0) continue;
      add_data(source_.substr(begin, tag - begin), text_line, sign, true, line_starting);
      advance(length);
      end_tag(source_[pos_ - 3]);
      return {};
    }
    return template_error(line, "missing end of raw directive");
  }

  Status expression(TokenKind end_kind, std::string_view end) {
    const int line = line_;
    brackets_.clear();
    while (true) {
      skip_spaces();
      if (pos_ >= source_.size()) return template_error(line, "a tag is not closed");
      if (brackets_.empty() && ended(end_kind, end)) return {};
      KAPITSA_TRY(expression_token());
    }
  }

  bool ended(TokenKind end_kind, std::string_view end) {
    const char sign = peek();
    const bool has_sign =
        (sign == '-' || (sign == '+' && end == "%}")) && source_.substr(pos_ + 1).starts_with(end);
    if (!has_sign && !at(end)) return false;
    add(end_kind);
    advance(end.size() + (has_sign ? 1 : 0));
    if (end == "%}")
      end_tag(has_sign ? sign : '\0');
    else if (has_sign)
      skip_spaces();
    return true;
  }

  Status expression_token() {
    const char c = peek();
    if (is_name_start(c)) {
      size_t n = 0;
      while (is_name_start(peek(n)) || is_digit(peek(n)))
        ++n;
      add(TokenKind::name, source_.substr(pos_, n));
      advance(n);
      return {};
    }
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                               "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                               "]",  "{",  "}",  ",",  ":",  ".",  "|", ";"};
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      KAPITSA_TRY(balance(op));
      add(TokenKind::op, op);
      advance(op.size());
      return {};
    }
    const bool printable = c >= 0x20 && c < 0x7F;
    return template_error(line_, printable ? fmt::format("unexpected char '{}'", c)
                                           : std::string("unexpected char"));
  }

  Status balance(std::string_view op) {
    if (op == "(") brackets_ += ')';
    if (op == "[") brackets_ += ']';
    if (op == "{") brackets_ += '}';
    if (op != ")" && op != "]" && op != "}") return {};
    if (brackets_.empty()) return template_error(line_, fmt::format("unexpected '{}'", op));
    if (brackets_.back() != op[0])
      return template_error(line_,
                            fmt::format("unexpected '{}', expected '{}'", op, brackets_.back()));
    brackets_.pop_back();
    return {};
  }

  std::string digits(size_t& n) const {
    std::string out;
    while (is_digit(peek(n)) || (peek(n) == '_' && is_digit(peek(n + 1)))) {
      if (peek(n) != '_') out += peek(n);
      ++n;
    }
    return out;
  }

  Status number() {
    const std::string_view rest = source_.substr(pos_);
    int base = 10;
    if (rest.starts_with("0x") || rest.starts_with("0X")) base = 16;
    if (rest.starts_with("0o") || rest.starts_with("0O")) base = 8;
    if (rest.starts_with("0b") || rest.starts_with("0B")) base = 2;
    size_t n = base == 10 ? 0 : 2;
    std::string text;
    bool is_real = false;
    if (base != 10) {
      for (; std::isalnum(static_cast<unsigned char>(peek(n))) || peek(n) == '_'; ++n)
        if (peek(n) != '_') text += peek(n);
    } else {
      text = digits(n);
      if (peek(n) == '.' && is_digit(peek(n + 1))) {
        is_real = true;
        ++n;
        text += "." + digits(n);
      }
      const size_t sign = peek(n + 1) == '+' || peek(n + 1) == '-' ? 1 : 0;
      if ((peek(n) == 'e' || peek(n) == 'E') && is_digit(peek(n + 1 + sign))) {
        is_real = true;
        text += 'e';
        if (sign) text += peek(n + 1);
        n += 1 + sign;
        text += digits(n);
      }
    }
    Token token{is_real ? TokenKind::real : TokenKind::integer,
                std::string(source_.substr(pos_, n)), 0, 0, line_};
    const char* end = text.data() + text.size();
    const auto result = is_real ? std::from_chars(text.data(), end, token.real)
                                : std::from_chars(text.data(), end, token.integer, base);
    if (is_real && result.ec == std::errc::result_out_of_range)
      token.real = text.find("e-") == std::string::npos ? HUGE_VAL : 0.0;
    else if (result.ec != std::errc() || result.ptr != end)
      return template_error(line_, fmt::format("number '{}' is not a 64-bit number", token.text));
    tokens_.push_back(std::move(token));
    advance(n);
    return {};
  }

  Status string() {
    const char quote = peek();
    size_t n = 1;
    while (pos_ + n < source_.size() && peek(n) != quote)
      n += peek(n) == '\\' ? 2 : 1;
    if (pos_ + n >= source_.size()) return template_error(line_, "a string is not closed");
    add(TokenKind::string).text = unescape(source_.substr(pos_ + 1, n - 1));
    advance(n + 1);
    return {};
  }

  // Python's "unicode-escape" decoding; unknown escapes stay as they are.
  static std::string unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kNames = "\\'\"abfnrtv";
      constexpr std::string_view kBytes = "\\'\"\a\b\f\n\r\t\v";
      const size_t hex_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      uint32_t code = 0;
      if (const size_t name = kNames.find(c); name != std::string_view::npos) {
        out += kBytes[name];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        size_t n = 0;
        for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n)
          code = code * 8 + static_cast<uint32_t>(text[i + n] - '0');
        utf8_append(out, code);
        i += n - 1;
      } else if (hex_digits > 0 && i + hex_digits < text.size() &&
                 std::from_chars(text.data() + i + 1, text.data() + i + 1 + hex_digits, code, 16)
                         .ptr == text.data() + i + 1 + hex_digits) {
        utf8_append(out, code);
        i += hex_digits;
      } else {
        out += {'\\', c};
      }
    }
    return out;
  }

  std::string normalised_;
  std::string_view source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing brackets that are due, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

Error template_error(int line, std::string_view message) {
  std::string text = fmt::format("template line {}: ", line);
  for (const char c : message)
    text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return {ErrorCode::invalid_argument, std::move(text)};
}

Result<std::vector<Token>> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace kapitsa::text::jinja
