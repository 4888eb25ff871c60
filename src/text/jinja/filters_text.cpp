// Filters that make text or numbers.
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kapitsa::text::jinja {

namespace {

Result<Value> filter_tojson(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a,
                 bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = flag(a[0]);
  style.sort_keys = flag(a[3]);
  if (a[1] && a[1]->is_string()) {
    style.indent = a[1]->string().text();
  } else if (a[1] && !a[1]->is_none()) {
    KAPITSA_ASSIGN(const int64_t width, as_integer("indent", *a[1]));
    style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 100)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (a[2] && !a[2]->is_none()) {
    const bool is_pair = a[2]->is_list() && a[2]->as_list()->items.size() == 2 &&
                         a[2]->as_list()->items[0].is_string() &&
                         a[2]->as_list()->items[1].is_string();
    if (!is_pair) return Runtime::error("tojson() separators must be a pair of strings");
    style.item_separator = a[2]->as_list()->items[0].string().text();
    style.key_separator = a[2]->as_list()->items[1].string().text();
  }
  KAPITSA_ASSIGN(Str text, to_json(self, style, rt.max_bytes()));
  return Value(std::move(text));
}

Result<Value> filter_from_json(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_TRY(bind("from_json", arguments, {}));
  KAPITSA_ASSIGN(const Str* text, as_string("from_json input", self));
  KAPITSA_TRY(rt.charge(static_cast<int64_t>(text->size())));
  return parse_json(text->view(), text->has_user_text() ? Str::Origin::user : Str::Origin::trusted);
}

Result<Value> filter_string(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_TRY(bind("string", arguments, {}));
  if (self.is_string()) return self;
  KAPITSA_ASSIGN(Str text, rt.text_of(self));
  return Value(std::move(text));
}

Result<Value> filter_trim(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("trim", arguments, {"chars"}));
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  const Str* characters = nullptr;
  if (a[0] && !a[0]->is_none()) {
    KAPITSA_ASSIGN(characters, as_string("trim() chars", *a[0]));
  }
  return text.is_markup() ? marked(Value(strip(text, characters, Side::both)))
                          : Value(strip(text, characters, Side::both));
}

Result<Value> filter_upper(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  return text.is_markup() ? marked(Value(map_case(text, true))) : Value(map_case(text, true));
}

Result<Value> filter_lower(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  return text.is_markup() ? marked(Value(map_case(text, false))) : Value(map_case(text, false));
}

Result<Value> filter_capitalize(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  return text.is_markup() ? marked(Value(capitalize(text))) : Value(capitalize(text));
}

Result<Value> filter_title(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  return Value(title(text));
}

Result<Value> filter_replace(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("replace", arguments, {"old", "new", "count"}, 2));
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  KAPITSA_ASSIGN(const Str from, rt.text_of(*a[0]));
  KAPITSA_ASSIGN(const Str to, rt.text_of(*a[1]));
  int64_t count = -1;
  if (a[2] && !a[2]->is_none()) {
    KAPITSA_ASSIGN(count, as_integer("replace() count", *a[2]));
  }
  return replace(rt, text, from, to, count);
}

Result<Value> filter_indent(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("indent", arguments, {"width", "first", "blank"}));
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  Str indent("    ");
  if (a[0] && a[0]->is_string()) {
    indent = a[0]->string();
  } else if (a[0]) {
    KAPITSA_ASSIGN(const int64_t width, as_integer("indent() width", *a[0]));
    indent = Str(std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1000)), ' '));
  }
  const auto n_lines =
      static_cast<size_t>(std::count(text.text().begin(), text.text().end(), '\n') + 1);
  if (!indent.empty() && n_lines > rt.max_bytes() / indent.size())
    return Runtime::error(fmt::format("a string is longer than {} bytes", rt.max_bytes()));
  KAPITSA_TRY(rt.charge_bytes(text.size() + n_lines * indent.size()));
  Str out;
  size_t begin = 0;
  for (bool first = true; begin <= text.size(); first = false) {
    const size_t newline = std::min(text.view().find('\n', begin), text.size());
    const bool is_blank = newline == begin;
    if (first ? flag(a[1]) : (flag(a[2]) || !is_blank)) out.append(indent);
    out.append(text, begin, std::min(newline + 1, text.size()));
    begin = newline + 1;
  }
  out.set_markup(text.is_markup());
  return Value(std::move(out));
}

Result<Value> filter_format(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  Value values = Value::tuple(arguments.positional);
  if (!arguments.named.empty()) {
    values = Value::dict();
    for (const auto& [name, value] : arguments.named)
      values.as_dict()->set(std::string_view(name), value);
  }
  return rt.binary("%", Value(text), values);
}

Result<Value> filter_safe(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(Str text, rt.text_of(self));
  text.set_markup();
  return Value(std::move(text));
}

Result<Value> filter_forceescape(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(const Str text, rt.text_of(self));
  KAPITSA_TRY(rt.charge_bytes(text.size() * 5));
  return Value(escape_html(text));
}

Result<Value> filter_escape(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (self.is_string() && self.string().is_markup()) return self;
  return filter_forceescape(rt, self, arguments);
}

// Python's int(text, base) and float(text); nothing when the text is not a number.
std::optional<int64_t> parse_integer(const Str& text, int base) {
  const Str stripped = strip(text, nullptr, Side::both);
  std::string digits = stripped.text();
  std::erase(digits, '_');
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0' && base != 10) {
    const char marker = static_cast<char>(digits[1] | 0x20);
    const bool matches = (base == 16 && marker == 'x') || (base == 8 && marker == 'o') ||
                         (base == 2 && marker == 'b');
    if (matches) digits.erase(0, 2);
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, "-");
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> parse_real(const Str& text) {
  const Str stripped = strip(text, nullptr, Side::both);
  std::string digits = stripped.text();
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (digits.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

Result<Value> filter_int(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("int", arguments, {"default", "base"}));
  int64_t base = 10;
  if (a[1]) {
    KAPITSA_ASSIGN(base, as_integer("int() base", *a[1]));
    if (base < 2 || base > 36) return Runtime::error("int() base must be 2 to 36");
  }
  if (self.is_integral()) return Value(self.integral());
  std::optional<double> real;
  if (self.is(Value::Kind::real)) real = self.real();
  if (self.is_string()) {
    if (const auto integer = parse_integer(self.string(), static_cast<int>(base)))
      return Value(*integer);
    real = parse_real(self.string());
  }
  if (real && std::abs(*real) < 9.2e18) return Value(static_cast<int64_t>(*real));
  return a[0] ? *a[0] : Value(0);
}

Result<Value> filter_float(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("float", arguments, {"default"}));
  if (self.is_number()) return Value(self.number());
  if (self.is_string())
    if (const auto real = parse_real(self.string())) return Value(*real);
  return a[0] ? *a[0] : Value(0.0);
}

Result<Value> filter_abs(Runtime& rt, const Value& self, const Arguments&) {
  if (self.is(Value::Kind::real)) return Value(std::abs(self.real()));
  KAPITSA_ASSIGN(const int64_t value, as_integer("abs() input", self));
  return value < 0 ? rt.binary("-", 0, value) : Result<Value>(Value(value));
}

Result<Value> filter_round(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("round", arguments, {"precision", "method"}));
  if (!self.is_number()) return Runtime::error("round() input must be a number");
  int64_t precision = 0;
  if (a[0]) {
    KAPITSA_ASSIGN(precision, as_integer("round() precision", *a[0]));
  }
  const std::string_view method = a[1] && a[1]->is_string() ? a[1]->string().view() : "common";
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = self.number() * scale;
  if (!std::isfinite(scaled)) return Value(self.number());
  if (method == "ceil") return Value(std::ceil(scaled) / scale);
  if (method == "floor") return Value(std::floor(scaled) / scale);
  // Ties go to the even digit, as in Python; the decimal text decides what is a tie.
  const std::string text = fmt::format("{:.{}f}", self.number(),
                                       static_cast<int>(std::clamp<int64_t>(precision, 0, 300)));
  return precision >= 0 ? Value(std::strtod(text.c_str(), nullptr))
                        : Value(std::nearbyint(scaled) / scale);
}

constexpr NamedBuiltin kFilters[] = {
    {"tojson", filter_tojson},
    {"from_json", filter_from_json},
    {"string", filter_string},
    {"safe", filter_safe},
    {"trim", filter_trim},
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"format", filter_format},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
};

}  // namespace

Builtin find_text_filter(std::string_view name) {
  return find_in(std::begin(kFilters), std::end(kFilters), name);
}

}  // namespace kapitsa::text::jinja
