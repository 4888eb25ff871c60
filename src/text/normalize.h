// The text transformations of a tokenizer file that come before tokens are looked for: Unicode
// normal forms, replacements, prefixes. Applied to each stretch of text between special tokens.
#pragma once

#include "base/result.h"
#include "text/regex.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::text {

struct NormalizeRule {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lowercase,
    replace,         // literal `from` by `to`
    replace_regex,   // matches of `from` by `to`
    prepend,         // `to` in front of text that is not empty
    prepend_if_not,  // the same, unless the text starts with it already
    prepend_first,   // prepend_if_not, at the start of the whole text only
    strip_left,
    strip_right,
  };
  Kind kind = Kind::nfc;
  std::string from;
  std::string to;
};

// Immutable after compile() and safe to use from several threads.
class Normalizer {
public:
  static Result<Normalizer> compile(std::span<const NormalizeRule> rules);

  bool empty() const { return steps_.empty(); }
  // Invalid UTF-8 passes through unchanged. `at_start`: nothing stands in front of the text.
  Result<std::string> apply(std::string text, bool at_start) const;

private:
  struct Step {
    NormalizeRule rule;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

}  // namespace kapitsa::text
