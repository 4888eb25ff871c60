// Pre-tokenization with PCRE2: compiled once, just-in-time where the system allows it, otherwise
// interpreted. The only file that calls PCRE2. Callers guarantee valid UTF-8, so that the library
// does not check the rest of the text again at every match.
#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/pretokenize.h"

#include <pcre2.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace kapitsa::text {

namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

struct NamedRules {
  std::string_view name;
  std::array<std::string_view, 2> patterns;
};

constexpr NamedRules kNamed[] = {
    {"gpt-2", {kGpt2}},
    {"gpt2", {kGpt2}},
    {"smollm", {R"(\p{N})", kGpt2}},
    {"starcoder", {R"(\p{N})", kGpt2}},
    {"llama3", {kLlama3}},
    {"llama-v3", {kLlama3}},
    {"llama-bpe", {kLlama3}},
    {"pixtral", {kLlama3}},
    {"qwen2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"tekken", {kTekken}},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"bailingmoe", {kBailing}},
    {"bailingmoe2", {kBailing}},
    {"llada-moe", {kBailing}},
};

// PCRE2 counts U+180E as white space; Unicode since 6.3, and so every reference tokenizer, does
// not. Hence \s and \S are written out.
constexpr std::string_view kSpaces =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

std::string spell_out_spaces(std::string_view pattern) {
  std::string out;
  int depth = 0;  // of [ ]; nested ones occur in Oniguruma patterns only
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' || next == 'S') {
        const std::string_view set = next == 's' ? kSpaces : kNotSpaces;
        out += depth > 0 ? std::string(set) : fmt::format("[{}]", set);
      } else {
        out += {c, next};
      }
      continue;
    }
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    out += c;
  }
  return out;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string regex_message(int code) {
  std::array<unsigned char, 200> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

using Part = std::pair<std::string_view, bool>;  // text, whether it is a match

void add_pieces(const std::vector<Part>& parts, SplitBehaviour behaviour,
                std::vector<std::string_view>& pieces) {
  const auto joined = [](std::string_view a, std::string_view b) {
    return std::string_view(a.data(), a.size() + b.size());
  };
  bool previous_match = false;
  bool join_next = false;
  const size_t first = pieces.size();
  for (const auto& [part, is_match] : parts) {
    bool join = false;
    switch (behaviour) {
    case SplitBehaviour::isolated: break;
    case SplitBehaviour::removed:
      if (is_match) continue;
      break;
    case SplitBehaviour::merged_with_previous: join = is_match && !previous_match; break;
    case SplitBehaviour::merged_with_next: join = join_next && !is_match; break;
    case SplitBehaviour::contiguous: join = is_match == previous_match; break;
    }
    if (join && pieces.size() > first)
      pieces.back() = joined(pieces.back(), part);
    else
      pieces.push_back(part);
    previous_match = is_match;
    join_next = is_match;
  }
}

}  // namespace

std::vector<SplitRule> pretokenizer_rules(std::string_view name) {
  std::vector<SplitRule> rules;
  for (const NamedRules& named : kNamed) {
    if (named.name != name) continue;
    for (std::string_view pattern : named.patterns)
      if (!pattern.empty()) rules.push_back({std::string(pattern)});
    break;
  }
  return rules;
}

bool implies_ignore_merges(std::string_view name) {
  constexpr std::string_view kNames[] = {"llama3", "llama-v3", "llama-bpe", "pixtral", "tekken"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

struct Pretokenizer::Rule {
  std::string pattern;
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  SplitBehaviour behaviour;
  bool invert;

  // Next non-empty match at or after `pos`: 1 found, 0 none, negative a PCRE2 error.
  int find(std::string_view text, size_t pos, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(code.get(), subject, text.size(), pos, options, data, nullptr);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc =
          pcre2_match(code.get(), subject, text.size(), pos, options | PCRE2_NO_JIT, data, nullptr);
    return rc == PCRE2_ERROR_NOMATCH ? 0 : (rc >= 0 ? 1 : rc);
  }

  Status apply(std::string_view text, pcre2_match_data* data, std::vector<Part>& parts,
               std::vector<std::string_view>& pieces) const {
    parts.clear();
    size_t done = 0;
    while (done < text.size()) {
      const int found = find(text, done, data);
      if (found < 0)
        return Error{ErrorCode::unsupported,
                     fmt::format("pre-tokenizer pattern '{}' failed on {} bytes of text: {}",
                                 pattern, text.size(), regex_message(found))};
      size_t begin = text.size();
      size_t end = text.size();
      if (found == 1) {
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
        begin = range[0];
        end = range[1];
        // \K inside a lookaround can make a match that ends before it starts or moves backwards.
        if (begin < done || end <= begin) begin = end = text.size();
      }
      if (begin > done) parts.emplace_back(text.substr(done, begin - done), invert);
      if (end > begin) parts.emplace_back(text.substr(begin, end - begin), !invert);
      done = end;
    }
    add_pieces(parts, behaviour, pieces);
    return {};
  }
};

Pretokenizer::Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::compile(std::span<const SplitRule> rules) {
  Pretokenizer result;
  for (const SplitRule& rule : rules) {
    const std::string pattern = spell_out_spaces(rule.pattern);
    int code = 0;
    PCRE2_SIZE offset = 0;
    std::unique_ptr<pcre2_code, CodeDeleter> compiled(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
    if (!compiled)
      return Error{ErrorCode::corrupt_file,
                   fmt::format("pre-tokenizer pattern '{}' does not compile: {}", rule.pattern,
                               regex_message(code))};
    // A failure only means that the interpreter runs instead, about 3.5 times slower.
    pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
    result.rules_.push_back({rule.pattern, std::move(compiled), rule.behaviour, rule.invert});
  }
  return result;
}

Status Pretokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (text.empty()) return {};
  std::unique_ptr<pcre2_match_data, MatchDeleter> data(pcre2_match_data_create(1, nullptr));
  if (!data) return Error{ErrorCode::out_of_memory, "no memory for a regex match"};
  std::vector<std::string_view> current{text};
  std::vector<std::string_view> next;
  std::vector<Part> parts;
  for (const Rule& rule : rules_) {
    next.clear();
    for (std::string_view piece : current)
      KAPITSA_TRY(rule.apply(piece, data.get(), parts, next));
    current.swap(next);
  }
  pieces.insert(pieces.end(), current.begin(), current.end());
  return {};
}

}  // namespace kapitsa::text
