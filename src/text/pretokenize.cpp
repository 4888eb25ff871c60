// The patterns of known pre-tokenizers, and what becomes of matches and of the text between them.
#include "text/pretokenize.h"

#include <algorithm>
#include <array>
#include <utility>

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

Result<Pretokenizer> Pretokenizer::compile(std::span<const SplitRule> rules) {
  Pretokenizer result;
  for (const SplitRule& rule : rules) {
    auto regex = Regex::compile(rule.pattern);
    if (!regex) return Error{regex.error().code, "pre-tokenizer " + regex.error().message};
    result.rules_.push_back({std::move(*regex), rule.behaviour, rule.invert});
  }
  return result;
}

Status Pretokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (text.empty()) return {};
  Regex::Scratch scratch;
  std::vector<std::string_view> current{text};
  std::vector<std::string_view> next;
  std::vector<Part> parts;
  for (const Rule& rule : rules_) {
    next.clear();
    for (std::string_view piece : current) {
      parts.clear();
      for (size_t done = 0; done < piece.size();) {
        auto match = rule.regex.find(piece, done, scratch);
        if (!match) return Error{match.error().code, "pre-tokenizer " + match.error().message};
        const Regex::Range range = match->value_or(Regex::Range{piece.size(), piece.size()});
        if (range.begin > done)
          parts.emplace_back(piece.substr(done, range.begin - done), rule.invert);
        if (range.end > range.begin)
          parts.emplace_back(piece.substr(range.begin, range.end - range.begin), !rule.invert);
        done = range.end;
      }
      add_pieces(parts, rule.behaviour, next);
    }
    current.swap(next);
  }
  pieces.insert(pieces.end(), current.begin(), current.end());
  return {};
}

}  // namespace kapitsa::text
