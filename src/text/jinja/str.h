// A string that remembers which of its bytes a user wrote. Template text and what the engine
// computes are trusted; everything that came from a message is not, and stays so through slicing,
// concatenation and filters. The flag is about origin only: it never changes what a template sees.
// Apart from that, text can be markup (the filter `safe`), as MarkupSafe has it: what is joined to
// it by operators and methods is escaped as HTML. Building a new string gives plain text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa::text::jinja {

class Str {
public:
  enum class Origin : bool { trusted, user };

  Str() = default;
  explicit Str(std::string text, Origin origin = Origin::trusted);
  explicit Str(std::string_view text) : Str(std::string(text)) {}
  explicit Str(const char* text) : Str(std::string(text)) {}

  const std::string& text() const { return text_; }
  std::string_view view() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  bool is_markup() const { return is_markup_; }
  void set_markup(bool markup = true) { is_markup_ = markup; }
  bool has_user_text() const { return !user_.empty(); }

  void append(std::string_view text, Origin origin = Origin::trusted);
  void append(const Str& other) { append(other, 0, other.size()); }
  void append(const Str& other, size_t begin, size_t end);
  Str substr(size_t begin, size_t end) const;  // byte offsets, begin <= end <= size()

  // Calls f(text, origin) for each run of one origin, in order.
  template <typename F>
  void for_each_run(const F& f) const {
    size_t pos = 0;
    for (const auto& [begin, end] : user_) {
      if (begin > pos) f(view().substr(pos, begin - pos), Origin::trusted);
      f(view().substr(begin, end - begin), Origin::user);
      pos = end;
    }
    if (pos < size()) f(view().substr(pos), Origin::trusted);
  }

  // The code points of Python's str: begin offset of each, with size() at the end. Bytes that are
  // not valid UTF-8 count as one each.
  std::vector<size_t> codepoint_offsets() const;
  size_t n_codepoints() const;
  bool is_ascii() const;

private:
  std::string text_;
  bool is_markup_ = false;
  std::vector<std::pair<size_t, size_t>> user_;  // disjoint, not adjacent, in order
};

}  // namespace kapitsa::text::jinja
