// PCRE2 behind regex.h. Callers guarantee valid UTF-8, so that the library does not check the rest
// of the text again at every match.
#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/regex.h"

#include "text/quoted.h"

#include <pcre2.h>

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

namespace kapitsa::text {

namespace {

// PCRE2 counts U+180E as white space; Unicode since 6.3, and so every reference tokenizer, does
// not. Hence \s and \S are written out.
constexpr std::string_view kSpaces =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

Error broken(std::string_view pattern, std::string_view what) {
  return {ErrorCode::corrupt_file, fmt::format("pattern {}: {}", quoted(pattern), what)};
}

// Appends the escape at the start of `rest` in PCRE2's spelling; returns its length.
Result<size_t> translate_escape(std::string_view pattern, std::string_view rest, bool in_set,
                                std::string& out) {
  const auto add_set = [&](std::string_view set) {
    out += in_set ? std::string(set) : fmt::format("[{}]", set);
    return size_t{2};
  };
  switch (rest[1]) {
  case 's': return add_set(kSpaces);
  case 'S': return add_set(kNotSpaces);
  case 'h': return add_set("0-9A-Fa-f");
  case 'H': return broken(pattern, "\\H is not supported");
  case 'u': {
    const std::string_view digits = rest.substr(2, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789ABCDEFabcdef") != digits.npos)
      return broken(pattern, "expected four hexadecimal digits after \\u");
    out += fmt::format("\\x{{{}}}", digits);
    return size_t{6};
  }
  default: out += rest.substr(0, 2); return size_t{2};
  }
}

// The pattern in PCRE2's dialect. Inside [ ], Oniguruma knows && and nested sets, which PCRE2 would
// take for literal characters: those are refused.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\' && rest.size() > 1) {
      KAPITSA_ASSIGN(const size_t length, translate_escape(pattern, rest, in_set, out));
      i += length - 1;
      continue;
    }
    if (in_set && (rest.starts_with("&&") || (rest[0] == '[' && !rest.starts_with("[:"))))
      return broken(pattern, "nested and intersected sets are not supported");
    if (in_set && rest.starts_with("[:")) {
      const size_t end = rest.find(":]");
      if (end == std::string_view::npos) return broken(pattern, "unclosed [: :]");
      out += rest.substr(0, end + 2);
      i += end + 1;
      continue;
    }
    if (rest[0] == '[') in_set = true;
    if (rest[0] == ']') in_set = false;
    out += rest[0];
  }
  return out;
}

std::string message(int code) {
  std::array<unsigned char, 200> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Regex::Code {
  struct Deleter {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  };
  std::unique_ptr<pcre2_code, Deleter> code;
};

struct Regex::Scratch::Data {
  struct Deleter {
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  };
  std::unique_ptr<pcre2_match_data, Deleter> match{pcre2_match_data_create(1, nullptr)};
};

Regex::Scratch::Scratch() : data_(std::make_unique<Data>()) {}
Regex::Scratch::~Scratch() = default;

Regex::Regex(std::string pattern, std::unique_ptr<Code> code)
    : pattern_(std::move(pattern)), code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  KAPITSA_ASSIGN(const std::string translated, translate(pattern));
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Code>();
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
  if (!compiled->code) return broken(pattern, message(code));
  // A failure only means that the interpreter runs instead, about 3.5 times slower.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::string(pattern), std::move(compiled));
}

Result<std::optional<Regex::Range>> Regex::find(std::string_view text, size_t pos,
                                                Scratch& scratch) const {
  using Found = std::optional<Range>;
  pcre2_match_data* data = scratch.data_->match.get();
  if (!data) return Error{ErrorCode::out_of_memory, "no memory for a regex match"};
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = [&](uint32_t options) {
    return pcre2_match(code_->code.get(), subject, text.size(), pos,
                       options | PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, nullptr);
  };
  int rc = match(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return Found();
  if (rc < 0)
    return Error{ErrorCode::unsupported, fmt::format("pattern {} failed on {} bytes of text: {}",
                                                     quoted(pattern_), text.size(), message(rc))};
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
  // \K inside a lookaround can make a match that ends before it starts or moves backwards.
  if (range[0] < pos || range[1] <= range[0]) return Found();
  return Found(Range{range[0], range[1]});
}

}  // namespace kapitsa::text
