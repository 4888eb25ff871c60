// Normal forms come from utf8proc; ASCII skips it, because ASCII is its own normal form.
#include "text/normalize.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <utf8proc.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace kapitsa::text {

namespace {

using Kind = NormalizeRule::Kind;

constexpr size_t kMaxBytes = size_t{1} << 30;

Error too_long() {
  return {ErrorCode::invalid_argument,
          fmt::format("normalized text is longer than {} bytes", kMaxBytes)};
}

// Calls f(valid run) and passes what is invalid on.
template <typename F>
Result<std::string> map_valid_runs(const std::string& text, const F& f) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = utf8_valid_prefix(text, pos);
    if (end > pos) {
      KAPITSA_ASSIGN(const std::string run, f(std::string_view(text).substr(pos, end - pos)));
      out += run;
    }
    if (end == text.size()) break;
    const size_t length = utf8_decode(text, end).length;
    out.append(text, end, length);
    pos = end + length;
  }
  return out;
}

Result<std::string> normal_form(std::string_view text, Kind kind) {
  int options = UTF8PROC_STABLE;
  options |= kind == Kind::nfc || kind == Kind::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (kind == Kind::nfkc || kind == Kind::nfkd) options |= UTF8PROC_COMPAT;
  struct Free {
    void operator()(utf8proc_uint8_t* p) const { std::free(p); }
  };
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                   static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(mapped);
  if (length < 0)
    return Error{ErrorCode::out_of_memory,
                 fmt::format("Unicode normalization failed: {}", utf8proc_errmsg(length))};
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

Result<std::string> lowercase(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_decode(text, pos);
    // The one code point whose lower case is two.
    if (step.codepoint == 0x130)
      out += "i\xCC\x87";
    else
      utf8_append(out, static_cast<char32_t>(
                           utf8proc_tolower(static_cast<utf8proc_int32_t>(step.codepoint))));
    pos += step.length;
  }
  return out;
}

std::string replace_literal(const std::string& text, const std::string& from,
                            const std::string& to) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos && out.size() <= kMaxBytes;
       at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  out.append(text, done);
  return out;
}

Result<std::string> replace_regex(std::string_view text, const Regex& regex,
                                  const std::string& to) {
  std::string out;
  Regex::Scratch scratch;
  size_t done = 0;
  while (done < text.size() && out.size() <= kMaxBytes) {
    KAPITSA_ASSIGN(const auto match, regex.find(text, done, scratch));
    if (!match) break;
    out += text.substr(done, match->begin - done);
    out += to;
    done = match->end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace

Result<Normalizer> Normalizer::compile(std::span<const NormalizeRule> rules) {
  Normalizer result;
  for (const NormalizeRule& rule : rules) {
    Step step{rule, std::nullopt};
    const bool replaces = rule.kind == Kind::replace || rule.kind == Kind::replace_regex;
    if (replaces && rule.from.empty())
      return Error{ErrorCode::corrupt_file, "normalizer: a replacement of nothing"};
    if (rule.kind == Kind::replace_regex) {
      KAPITSA_ASSIGN(step.regex, Regex::compile(rule.from));
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

Result<std::string> Normalizer::apply(std::string text, bool at_start) const {
  for (const auto& [rule, regex] : steps_) {
    const bool is_ascii = std::all_of(text.begin(), text.end(),
                                      [](char c) { return static_cast<uint8_t>(c) < 0x80; });
    switch (rule.kind) {
    case Kind::nfc:
    case Kind::nfd:
    case Kind::nfkc:
    case Kind::nfkd: {
      if (is_ascii) break;
      const auto form = [&kind = rule.kind](std::string_view run) {
        return normal_form(run, kind);
      };
      KAPITSA_ASSIGN(text, map_valid_runs(text, form));
      break;
    }
    case Kind::lowercase: {
      KAPITSA_ASSIGN(text, map_valid_runs(text, lowercase));
      break;
    }
    case Kind::replace: text = replace_literal(text, rule.from, rule.to); break;
    case Kind::replace_regex: {
      const auto replaced = [&r = *regex, &to = rule.to](std::string_view run) {
        return replace_regex(run, r, to);
      };
      KAPITSA_ASSIGN(text, map_valid_runs(text, replaced));
      break;
    }
    case Kind::prepend:
    case Kind::prepend_if_not:
    case Kind::prepend_first:
      if (text.empty() || (rule.kind == Kind::prepend_first && !at_start)) break;
      if (rule.kind == Kind::prepend || !text.starts_with(rule.to)) text.insert(0, rule.to);
      break;
    case Kind::strip_left: text.erase(0, leading_spaces(text)); break;
    case Kind::strip_right: text.resize(text.size() - trailing_spaces(text)); break;
    }
    if (text.size() > kMaxBytes) return too_long();
  }
  return text;
}

}  // namespace kapitsa::text
