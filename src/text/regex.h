// Regular expressions of tokenizer files: Oniguruma's syntax as far as PCRE2 agrees with it,
// Unicode classes on. Compiled once, just-in-time where the system allows it. The only header
// behind which PCRE2 stands.
#pragma once

#include "base/result.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::text {

// Immutable and safe to use from several threads, each with a Scratch of its own.
class Regex {
public:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  // Memory for matching; use one for many calls.
  class Scratch {
  public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

  private:
    friend class Regex;
    struct Data;
    std::unique_ptr<Data> data_;
  };

  // Fails on a pattern that does not compile, or that PCRE2 would read in another way.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The first match at or after `pos` that is not empty. `text` must be valid UTF-8. Fails when
  // the pattern needs more backtracking than the library allows.
  Result<std::optional<Range>> find(std::string_view text, size_t pos, Scratch& scratch) const;

private:
  struct Code;
  Regex(std::string pattern, std::unique_ptr<Code> code);

  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace kapitsa::text
