// The stream of bytes behind the stream of tokens. Does not know about stop strings.
#include "text/detokenizer.h"

#include "text/utf8.h"

#include <algorithm>

namespace kapitsa::text {

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // Complete the held start of a code point one byte at a time; the loop ends after at most three.
  while (n_held_ > 0 && !bytes.empty()) {
    held_[n_held_] = bytes.front();
    const std::string_view whole(held_.data(), n_held_ + 1);
    const Utf8Step step = utf8_decode(whole, 0);
    if (step.truncated) {
      ++n_held_;
      bytes.remove_prefix(1);
    } else if (step.valid) {
      out += whole;
      n_held_ = 0;
      bytes.remove_prefix(1);
    } else {
      out += kReplacementUtf8;  // the new byte starts afresh
      n_held_ = 0;
    }
  }
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t valid_end = utf8_valid_prefix(bytes, pos);
    out += bytes.substr(pos, valid_end - pos);
    pos = valid_end;
    if (pos == bytes.size()) return;
    const Utf8Step step = utf8_decode(bytes, pos);
    if (step.truncated) {
      n_held_ = step.length;
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(pos), n_held_, held_.begin());
      return;
    }
    out += kReplacementUtf8;
    pos += step.length;
  }
}

void Utf8Stream::flush(std::string& out) {
  if (n_held_ > 0) out += kReplacementUtf8;
  n_held_ = 0;
}

void Detokenizer::push(int32_t id, std::string& out) {
  const TokenType type = tokenizer_->token_type(id);
  const bool is_control = type == TokenType::control || type == TokenType::unknown;
  if (is_control && !options_.show_control) return;
  std::string_view bytes = tokenizer_->token_bytes(id);
  if (drop_space_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    drop_space_ = false;
  }
  stream_.push(bytes, out);
}

std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                       Detokenizer::Options options) {
  Detokenizer detokenizer(tokenizer, options);
  std::string out;
  for (const int32_t id : ids)
    detokenizer.push(id, out);
  detokenizer.flush(out);
  return out;
}

}  // namespace kapitsa::text
