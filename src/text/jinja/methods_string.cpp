// Methods of str, by code point like Python's.
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/utf8.h"

#include <utf8proc.h>

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::text::jinja {

namespace {

Result<Value> strip_method(const Value& self, const Arguments& arguments, Side side) {
  KAPITSA_ASSIGN(const auto a, bind("strip", arguments, {"chars"}));
  if (!a[0] || a[0]->is_none()) return Value(strip(self.string(), nullptr, side));
  KAPITSA_ASSIGN(const Str* characters, as_string("strip() chars", *a[0]));
  return Value(strip(self.string(), characters, side));
}
Result<Value> method_strip(Runtime&, const Value& self, const Arguments& arguments) {
  return strip_method(self, arguments, Side::both);
}
Result<Value> method_lstrip(Runtime&, const Value& self, const Arguments& arguments) {
  return strip_method(self, arguments, Side::left);
}
Result<Value> method_rstrip(Runtime&, const Value& self, const Arguments& arguments) {
  return strip_method(self, arguments, Side::right);
}

// Splits at white space; `left` splits at most, from the left or the right.
std::vector<Value> split_spaces(const Str& text, size_t left, bool from_right) {
  const std::vector<size_t> offsets = text.codepoint_offsets();
  const auto n = static_cast<int64_t>(offsets.size()) - 1;
  const auto offset = [&](int64_t i) { return offsets[static_cast<size_t>(i)]; };
  const auto is_space = [&](int64_t i) {
    const Utf8Step step = utf8_decode(text.view().substr(0, offset(i + 1)), offset(i));
    return step.valid && is_python_space(step.codepoint);
  };
  // From the right, the walk is the same with places counted from the end.
  const auto place = [&](int64_t i) { return from_right ? n - 1 - i : i; };
  const auto cut = [&](int64_t begin, int64_t end) {
    return from_right ? text.substr(offset(n - end), offset(n - begin))
                      : text.substr(offset(begin), offset(end));
  };
  std::vector<Value> parts;
  for (int64_t i = 0; i < n;) {
    if (is_space(place(i))) {
      ++i;
      continue;
    }
    int64_t end = i;
    while (end < n && (parts.size() == left || !is_space(place(end))))
      ++end;
    parts.push_back(cut(i, end));
    if (parts.size() > left) break;
    i = end;
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_at(const Str& text, std::string_view separator, size_t left,
                            bool from_right) {
  std::vector<Value> parts;
  size_t begin = 0;
  size_t end = text.size();
  while (parts.size() < left) {
    const std::string_view rest = text.view().substr(begin, end - begin);
    const size_t found = from_right ? rest.rfind(separator) : rest.find(separator);
    if (found == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(text.substr(begin + found + separator.size(), end));
      end = begin + found;
    } else {
      parts.push_back(text.substr(begin, begin + found));
      begin += found + separator.size();
    }
  }
  parts.push_back(text.substr(begin, end));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Result<Value> split_method(Runtime& rt, const Value& self, const Arguments& arguments,
                           bool from_right) {
  KAPITSA_ASSIGN(const auto a, bind("split", arguments, {"sep", "maxsplit"}));
  const Str& text = self.string();
  size_t left = text.size() + 1;
  if (a[1]) {
    KAPITSA_ASSIGN(const int64_t count, as_integer("split() maxsplit", *a[1]));
    if (count >= 0) left = std::min(left, static_cast<size_t>(count));
  }
  KAPITSA_TRY(rt.charge_bytes(text.size()));
  if (!a[0] || a[0]->is_none()) {
    return Value::list(split_spaces(text, left, from_right));
  }
  KAPITSA_ASSIGN(const Str* separator, as_string("split() separator", *a[0]));
  if (separator->empty()) return Runtime::error("empty separator");
  return Value::list(split_at(text, separator->view(), left, from_right));
}
Result<Value> method_split(Runtime& rt, const Value& self, const Arguments& arguments) {
  return split_method(rt, self, arguments, false);
}
Result<Value> method_rsplit(Runtime& rt, const Value& self, const Arguments& arguments) {
  return split_method(rt, self, arguments, true);
}

Result<Value> method_splitlines(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("splitlines", arguments, {"keepends"}));
  const Str& text = self.string();
  std::vector<Value> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.view().find_first_of("\n\r\v\f", begin), text.size());
    size_t next = std::min(end + 1, text.size());
    if (text.view().substr(end).starts_with("\r\n")) ++next;
    lines.push_back(text.substr(begin, flag(a[0]) ? next : end));
    begin = next;
  }
  return Value::list(std::move(lines));
}

// A prefix test against one string or any of a tuple.
template <typename Test>
Result<Value> any_affix(const char* name, const Arguments& arguments, const Test& test) {
  KAPITSA_ASSIGN(const auto a, bind(name, arguments, {"affix"}, 1));
  const std::vector<Value> affixes = a[0]->is_list() && a[0]->as_list()->is_tuple
                                         ? a[0]->as_list()->items
                                         : std::vector<Value>{*a[0]};
  for (const Value& affix : affixes) {
    KAPITSA_ASSIGN(const Str* text, as_string("prefix or suffix", affix));
    if (test(text->view())) return Value(true);
  }
  return Value(false);
}
Result<Value> method_startswith(Runtime&, const Value& self, const Arguments& arguments) {
  return any_affix("startswith", arguments,
                   [&](std::string_view s) { return self.string().view().starts_with(s); });
}
Result<Value> method_endswith(Runtime&, const Value& self, const Arguments& arguments) {
  return any_affix("endswith", arguments,
                   [&](std::string_view s) { return self.string().view().ends_with(s); });
}

Result<Value> method_removeprefix(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("removeprefix", arguments, {"prefix"}, 1));
  KAPITSA_ASSIGN(const Str* prefix, as_string("prefix", *a[0]));
  const Str& text = self.string();
  if (!text.view().starts_with(prefix->view())) return self;
  return Value(text.substr(prefix->size(), text.size()));
}
Result<Value> method_removesuffix(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("removesuffix", arguments, {"suffix"}, 1));
  KAPITSA_ASSIGN(const Str* suffix, as_string("suffix", *a[0]));
  const Str& text = self.string();
  if (!text.view().ends_with(suffix->view())) return self;
  return Value(text.substr(0, text.size() - suffix->size()));
}

Result<Value> method_replace(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("replace", arguments, {"old", "new", "count"}, 2));
  KAPITSA_ASSIGN(const Str* from, as_string("replace() old", *a[0]));
  KAPITSA_ASSIGN(const Str* to, as_string("replace() new", *a[1]));
  int64_t count = -1;
  if (a[2]) {
    KAPITSA_ASSIGN(count, as_integer("replace() count", *a[2]));
  }
  return replace(rt, self.string(), *from, *to, count);
}

Result<Value> find_method_of(const Value& self, const Arguments& arguments, bool from_right) {
  KAPITSA_ASSIGN(const auto a, bind("find", arguments, {"sub"}, 1));
  KAPITSA_ASSIGN(const Str* sub, as_string("find() sub", *a[0]));
  const std::string_view text = self.string().view();
  const size_t at = from_right ? text.rfind(sub->view()) : text.find(sub->view());
  if (at == std::string_view::npos) return Value(-1);
  return Value(static_cast<int64_t>(Str(text.substr(0, at)).n_codepoints()));
}
Result<Value> method_find(Runtime&, const Value& self, const Arguments& arguments) {
  return find_method_of(self, arguments, false);
}
Result<Value> method_rfind(Runtime&, const Value& self, const Arguments& arguments) {
  return find_method_of(self, arguments, true);
}

Result<Value> method_count(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("count", arguments, {"sub"}, 1));
  KAPITSA_ASSIGN(const Str* sub, as_string("count() sub", *a[0]));
  const Str& text = self.string();
  if (sub->empty()) return Value(static_cast<int64_t>(text.n_codepoints() + 1));
  int64_t n = 0;
  for (size_t at = text.view().find(sub->view()); at != std::string_view::npos;
       at = text.view().find(sub->view(), at + sub->size()))
    ++n;
  return Value(n);
}

Result<Value> method_join(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("join", arguments, {"iterable"}, 1));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(*a[0]));
  for (const Value& item : items)
    KAPITSA_TRY(as_string("join() item", item));
  return rt.filter("join", *a[0], {{self}, {}});
}

Result<Value> method_format(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(Str text, brace_format(self.string(), arguments, rt.max_bytes()));
  return Value(std::move(text));
}

Result<Value> method_upper(Runtime&, const Value& self, const Arguments&) {
  return Value(map_case(self.string(), true));
}
Result<Value> method_lower(Runtime&, const Value& self, const Arguments&) {
  return Value(map_case(self.string(), false));
}
Result<Value> method_capitalize(Runtime&, const Value& self, const Arguments&) {
  return Value(capitalize(self.string()));
}
Result<Value> method_title(Runtime&, const Value& self, const Arguments&) {
  return Value(title(self.string()));
}

template <typename Test>
Result<Value> all_codepoints(const Str& text, const Test& test) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_decode(text.view(), pos);
    if (!step.valid || !test(step.codepoint)) return Value(false);
    pos += step.length;
  }
  return Value(!text.empty());
}
bool is_category(char32_t c, utf8proc_category_t low, utf8proc_category_t high) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= low && category <= high;
}
bool is_letter(char32_t c) {
  return is_category(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
bool is_decimal(char32_t c) {
  return is_category(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND);
}
Result<Value> method_isdigit(Runtime&, const Value& self, const Arguments&) {
  return all_codepoints(self.string(), is_decimal);
}
Result<Value> method_isalpha(Runtime&, const Value& self, const Arguments&) {
  return all_codepoints(self.string(), is_letter);
}
Result<Value> method_isalnum(Runtime&, const Value& self, const Arguments&) {
  return all_codepoints(self.string(), [](char32_t c) { return is_letter(c) || is_decimal(c); });
}
Result<Value> method_isspace(Runtime&, const Value& self, const Arguments&) {
  return Value(!self.string().empty() && strip(self.string(), nullptr, Side::both).empty());
}
Result<Value> method_islower(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const bool result, rt.test("lower", self, {}));
  return Value(result);
}
Result<Value> method_isupper(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const bool result, rt.test("upper", self, {}));
  return Value(result);
}

constexpr NamedBuiltin kMethods[] = {
    {"split", method_split},
    {"strip", method_strip},
    {"lstrip", method_lstrip},
    {"rstrip", method_rstrip},
    {"startswith", method_startswith},
    {"endswith", method_endswith},
    {"replace", method_replace},
    {"rsplit", method_rsplit},
    {"splitlines", method_splitlines},
    {"removeprefix", method_removeprefix},
    {"removesuffix", method_removesuffix},
    {"find", method_find},
    {"rfind", method_rfind},
    {"count", method_count},
    {"join", method_join},
    {"format", method_format},
    {"upper", method_upper},
    {"lower", method_lower},
    {"capitalize", method_capitalize},
    {"title", method_title},
    {"isdigit", method_isdigit},
    {"isalpha", method_isalpha},
    {"isalnum", method_isalnum},
    {"isspace", method_isspace},
    {"islower", method_islower},
    {"isupper", method_isupper},
};

}  // namespace

Builtin find_string_method(std::string_view name) {
  return find_in(std::begin(kMethods), std::end(kMethods), name);
}

}  // namespace kapitsa::text::jinja
