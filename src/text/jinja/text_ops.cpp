// The string algorithms behind filters and methods: white space, case and replacing, by code point
// and without losing the origin of the text.
#include "text/jinja/builtins.h"
#include "text/utf8.h"

#include <utf8proc.h>

#include <fmt/format.h>

#include <limits>

namespace kapitsa::text::jinja {

namespace {

// Maps each code point with f(code point, index).
template <typename F>
Str map_codepoints(const Str& text, const F& f) {
  Str out;
  size_t index = 0;
  text.for_each_run([&](std::string_view run, Str::Origin origin) {
    std::string mapped;
    for (size_t pos = 0; pos < run.size();) {
      const Utf8Step step = utf8_decode(run, pos);
      const size_t length = step.valid ? step.length : 1;
      if (step.valid)
        utf8_append(mapped, f(step.codepoint, index));
      else
        mapped += run.substr(pos, length);
      pos += length;
      ++index;
    }
    out.append(mapped, origin);
  });
  return out;
}

char32_t to_case(char32_t c, bool upper) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  return static_cast<char32_t>(upper ? utf8proc_toupper(code) : utf8proc_tolower(code));
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

}  // namespace

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

Str strip(const Str& text, const Str* characters, Side side) {
  const std::vector<size_t> offsets = text.codepoint_offsets();
  const auto strips = [&](size_t i) {
    const std::string_view c = text.view().substr(offsets[i], offsets[i + 1] - offsets[i]);
    if (characters) return characters->view().find(c) != std::string_view::npos;
    const Utf8Step step = utf8_decode(c, 0);
    return step.valid && is_python_space(step.codepoint);
  };
  size_t begin = 0;
  size_t end = offsets.size() - 1;
  while (side != Side::right && begin < end && strips(begin))
    ++begin;
  while (side != Side::left && begin < end && strips(end - 1))
    --end;
  return text.substr(offsets[begin], offsets[end]);
}

Result<Value> replace(Runtime& runtime, const Str& text, const Str& from, const Str& to,
                      int64_t max_count) {
  // Places to put `to`; an empty `from` stands before every code point and at the end.
  std::vector<size_t> places;
  const size_t limit =
      max_count < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(max_count);
  if (from.empty()) {
    places = text.codepoint_offsets();
    if (places.size() > limit) places.resize(limit);
  } else {
    for (size_t pos = 0; places.size() < limit; pos = places.back() + from.size()) {
      const size_t found = text.view().find(from.view(), pos);
      if (found == std::string_view::npos) break;
      places.push_back(found);
    }
  }
  KAPITSA_TRY(runtime.charge_bytes(text.size()));
  if (!to.empty() && places.size() > runtime.max_bytes() / to.size())
    return Runtime::error(fmt::format("a string is longer than {} bytes", runtime.max_bytes()));
  KAPITSA_TRY(runtime.charge_bytes(places.size() * to.size()));
  Str out;
  size_t done = 0;
  for (const size_t place : places) {
    out.append(text, done, place);
    out.append(to);
    done = place + from.size();
  }
  out.append(text, done, text.size());
  return Value(std::move(out));
}

Str map_case(const Str& text, bool upper) {
  return map_codepoints(text, [upper](char32_t c, size_t) { return to_case(c, upper); });
}

Str capitalize(const Str& text) {
  return map_codepoints(text, [](char32_t c, size_t i) { return to_case(c, i == 0); });
}

Str title(const Str& text) {
  bool in_word = false;
  return map_codepoints(text, [&in_word](char32_t c, size_t) {
    const char32_t mapped = to_case(c, !in_word);
    in_word = is_letter(c);
    return mapped;
  });
}

}  // namespace kapitsa::text::jinja
