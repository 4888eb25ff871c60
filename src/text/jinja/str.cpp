// Keeps the ranges of user text sorted and merged; every other file builds strings through these
// three operations, so that origin cannot get lost.
#include "text/jinja/str.h"

#include "text/utf8.h"

#include <algorithm>

namespace kapitsa::text::jinja {

Str::Str(std::string text, Origin origin) : text_(std::move(text)) {
  if (origin == Origin::user && !text_.empty()) user_.emplace_back(0, text_.size());
}

void Str::append(std::string_view text, Origin origin) {
  if (text.empty()) return;
  const size_t begin = text_.size();
  text_ += text;
  if (origin == Origin::trusted) return;
  if (!user_.empty() && user_.back().second == begin)
    user_.back().second = text_.size();
  else
    user_.emplace_back(begin, text_.size());
}

void Str::append(const Str& other, size_t begin, size_t end) {
  if (begin >= end) return;
  if (!other.has_user_text()) return append(other.view().substr(begin, end - begin));
  size_t pos = begin;
  auto range = std::upper_bound(other.user_.begin(), other.user_.end(), begin,
                                [](size_t at, const auto& r) { return at < r.second; });
  for (; range != other.user_.end() && range->first < end; ++range) {
    const size_t user_begin = std::max(range->first, begin);
    const size_t user_end = std::min(range->second, end);
    append(other.view().substr(pos, user_begin - pos));
    append(other.view().substr(user_begin, user_end - user_begin), Origin::user);
    pos = user_end;
  }
  append(other.view().substr(pos, end - pos));
}

Str Str::substr(size_t begin, size_t end) const {
  Str out;
  out.append(*this, begin, end);
  return out;
}

std::vector<size_t> Str::codepoint_offsets() const {
  std::vector<size_t> offsets;
  offsets.reserve(text_.size() + 1);
  for (size_t pos = 0; pos < text_.size();) {
    offsets.push_back(pos);
    const Utf8Step step = utf8_decode(text_, pos);
    pos += step.valid ? step.length : 1;
  }
  offsets.push_back(text_.size());
  return offsets;
}

size_t Str::n_codepoints() const {
  return is_ascii() ? text_.size() : codepoint_offsets().size() - 1;
}

bool Str::is_ascii() const {
  return std::all_of(text_.begin(), text_.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace kapitsa::text::jinja
