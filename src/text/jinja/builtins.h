// The names that templates can use: filters, tests, global functions, and methods of str, list and
// dict. Each is a plain function; the tables are in filters.cpp, tests.cpp and methods.cpp.
#pragma once

#include "text/jinja/runtime.h"

#include <initializer_list>
#include <string_view>
#include <vector>

namespace kapitsa::text::jinja {

using Builtin = Result<Value> (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

struct NamedBuiltin {
  std::string_view name;
  Builtin function;
};

// Null when there is none.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_function(std::string_view name);
// Methods of the value's type, e.g. "split" of a string.
Builtin find_method(const Value& self, std::string_view name);

Builtin find_text_filter(std::string_view name);      // filters_text.cpp
Builtin find_sequence_filter(std::string_view name);  // filters_sequence.cpp
Builtin find_string_method(std::string_view name);    // methods_string.cpp

Builtin find_in(const NamedBuiltin* begin, const NamedBuiltin* end, std::string_view name);

// Arguments in the order of `names`; null for what was not given. Fails on unknown or too many.
Result<std::vector<const Value*>> bind(std::string_view function, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       size_t n_required = 0);
Result<int64_t> as_integer(std::string_view what, const Value& value);
Result<const Str*> as_string(std::string_view what, const Value& value);
inline bool flag(const Value* value, bool otherwise = false) {
  return value ? value->truthy() : otherwise;
}

// Pieces of strings, shared by filters and methods.
bool is_python_space(char32_t codepoint);  // str.isspace()
enum class Side { both, left, right };
Str strip(const Str& text, const Str* characters, Side side);  // null: white space
Result<Value> replace(Runtime& runtime, const Str& text, const Str& from, const Str& to,
                      int64_t max_count);
Str map_case(const Str& text, bool upper);
Str capitalize(const Str& text);
Str title(const Str& text);

// Markup (markup.cpp).
Str escape_html(const Str& text);
// Strings that are not markup, alone or in a container, escaped; other values as they are.
Result<Value> escaped(Runtime& runtime, const Value& value);
// A string, or the strings of a list, marked.
Value marked(const Value& value);
Result<Value> call_markup_method(Runtime& runtime, std::string_view name, const Value& self,
                                 const Arguments& arguments);

}  // namespace kapitsa::text::jinja
