// What becomes of matches and of the text between them.
#include "text/pretokenize.h"

#include <utility>

namespace kapitsa::text {

namespace {

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
