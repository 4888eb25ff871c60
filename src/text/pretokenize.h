// Cuts text into the pieces that BPE may not merge across, by one or more regular expressions that
// run one after the other, each on the pieces of the one before. Owns the patterns of the known
// GGUF pre-tokenizer names. Pieces are consecutive and cover the whole text.
#pragma once

#include "base/result.h"
#include "text/regex.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::text {

// What happens to the text that a pattern matches (names as in tokenizer.json).
enum class SplitBehaviour {
  isolated,              // a match is a piece, and so is the text between matches
  removed,               // a match is dropped
  merged_with_previous,  // a match ends the piece before it
  merged_with_next,      // a match starts the piece after it
  contiguous,            // adjacent matches are one piece
};

struct SplitRule {
  std::string pattern;  // PCRE2 / Oniguruma syntax, Unicode classes on
  SplitBehaviour behaviour = SplitBehaviour::isolated;
  bool invert = false;  // the text between matches plays the role of matches
};

// Rules of a GGUF `tokenizer.ggml.pre` name, e.g. "smollm"; empty when the name is unknown.
std::vector<SplitRule> pretokenizer_rules(std::string_view name);
// Whether models with this name keep a piece that is itself a token whole (GGUF has no other flag).
bool implies_ignore_merges(std::string_view name);

// Immutable after compile() and safe to use from several threads.
class Pretokenizer {
public:
  static Result<Pretokenizer> compile(std::span<const SplitRule> rules);

  // Appends the pieces of `text`, which must be valid UTF-8. Fails when a pattern needs more
  // backtracking than the regex library allows.
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

private:
  struct Rule {
    Regex regex;
    SplitBehaviour behaviour;
    bool invert;
  };
  std::vector<Rule> rules_;
};

}  // namespace kapitsa::text
