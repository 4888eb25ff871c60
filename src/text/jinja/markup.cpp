// Text marked by the filters `safe` and `escape`: operators and methods of such a string escape
// what they put into it and give marked text, as the class Markup of MarkupSafe 3 does.
#include "text/jinja/builtins.h"

namespace kapitsa::text::jinja {

Str escape_html(const Str& text) {
  Str out;
  text.for_each_run([&out](std::string_view run, Str::Origin origin) {
    std::string escaped;
    for (const char c : run) {
      switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '\'': escaped += "&#39;"; break;
      case '"': escaped += "&#34;"; break;
      default: escaped += c;
      }
    }
    out.append(escaped, origin);
  });
  out.set_markup();
  return out;
}

Result<Value> escaped(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    if (value.string().is_markup()) return value;
    KAPITSA_TRY(runtime.charge_bytes(value.string().size() * 5));
    return Value(escape_html(value.string()));
  }
  if (!value.is_list() && !value.is_dict()) return value;
  if (value.is_dict()) {
    Value out = Value::dict();
    for (const auto& [key, item] : value.as_dict()->entries()) {
      KAPITSA_TRY(runtime.charge(1));
      KAPITSA_ASSIGN(Value inner, item.is_string() ? escaped(runtime, item) : Result<Value>(item));
      out.as_dict()->set(key, std::move(inner));
    }
    return out;
  }
  std::vector<Value> items;
  for (const Value& item : value.as_list()->items) {
    KAPITSA_TRY(runtime.charge(1));
    KAPITSA_ASSIGN(Value inner, item.is_string() ? escaped(runtime, item) : Result<Value>(item));
    items.push_back(std::move(inner));
  }
  return value.as_list()->is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value marked(const Value& value) {
  if (value.is_string()) {
    Str text = value.string();
    text.set_markup();
    return Value(std::move(text));
  }
  if (!value.is_list()) return value;
  std::vector<Value> items;
  for (const Value& item : value.as_list()->items)
    items.push_back(item.is_string() ? marked(item) : item);
  return value.as_list()->is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Result<Value> call_markup_method(Runtime& runtime, std::string_view name, const Value& self,
                                 const Arguments& arguments) {
  Arguments own = arguments;
  const bool escapes_all = name == "format" || name == "join";
  for (size_t i = 0; i < own.positional.size(); ++i) {
    if (!escapes_all && !(name == "replace" && i == 1)) continue;
    KAPITSA_ASSIGN(own.positional[i], escaped(runtime, own.positional[i]));
  }
  for (auto& [key, value] : own.named) {
    if (!escapes_all && !(name == "replace" && key == "new")) continue;
    KAPITSA_ASSIGN(value, escaped(runtime, value));
  }
  KAPITSA_ASSIGN(const Value result, find_method(self, name)(runtime, self, own));
  return marked(result);
}

}  // namespace kapitsa::text::jinja
