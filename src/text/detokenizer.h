// Token ids to text that a client can show: every piece is valid UTF-8 however tokens cut the
// bytes. One object per stream, not shared between threads. No allocation per token beyond what
// the caller's string needs.
#pragma once

#include "text/tokenizer.h"

#include <array>
#include <span>
#include <string>

namespace kapitsa::text {

// Bytes in, valid UTF-8 out. At most three bytes of an unfinished code point wait; what can no
// longer become valid is replaced by U+FFFD, one for each maximal subpart, so that the whole output
// does not depend on how the input is cut.
class Utf8Stream {
public:
  void push(std::string_view bytes, std::string& out);
  void flush(std::string& out);  // an unfinished code point becomes U+FFFD
  size_t n_held() const { return n_held_; }

private:
  std::array<char, 4> held_{};
  size_t n_held_ = 0;
};

class Detokenizer {
public:
  struct Options {
    bool show_control = false;  // write control tokens by name
    // The first token starts the text: the space that the tokenizer puts there is left out. Not for
    // text that continues other text.
    bool at_start = false;
  };

  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  Detokenizer(const Tokenizer& tokenizer, Options options)
      : tokenizer_(&tokenizer), options_(options),
        drop_space_(options.at_start && tokenizer.strips_first_space()) {}

  // Appends what can be shown after this token; often nothing, or text of tokens before it.
  void push(int32_t id, std::string& out);
  void flush(std::string& out) { stream_.flush(out); }

private:
  const Tokenizer* tokenizer_;
  Options options_;
  bool drop_space_ = false;
  Utf8Stream stream_;
};

// All at once.
std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                       Detokenizer::Options options = {});

}  // namespace kapitsa::text
