// Filters over sequences and mappings, and `default`.
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace kapitsa::text::jinja {

namespace {

Result<Value> filter_length(Runtime&, const Value& self, const Arguments&) {
  switch (self.kind()) {
  case Value::Kind::undefined: return Value(0);
  case Value::Kind::string: return Value(static_cast<int64_t>(self.string().n_codepoints()));
  case Value::Kind::list: return Value(static_cast<int64_t>(self.as_list()->items.size()));
  case Value::Kind::dict: return Value(static_cast<int64_t>(self.as_dict()->size()));
  default: return Runtime::error(fmt::format("object of type '{}' has no len()", self.type_name()));
  }
}

Result<Value> filter_default(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("default", arguments, {"default_value", "boolean"}));
  if (!self.is_undefined() && !(flag(a[1]) && !self.truthy())) return self;
  return a[0] ? *a[0] : Value("");
}

// "a.b.0" of an item, as `map` and its relatives take it.
Result<Value> attribute_path(Runtime& rt, Value value, const Value& path) {
  if (!path.is_string()) return rt.item(value, path);
  std::string_view rest = path.string().view();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    KAPITSA_ASSIGN(value, rt.item(value, is_index ? Value(index) : Value(part)));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

Result<Value> filter_join(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("join", arguments, {"d", "attribute"}));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  Str separator;
  if (a[0]) {
    KAPITSA_ASSIGN(separator, rt.text_of(*a[0]));
  }
  Str out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (a[1] && !a[1]->is_none()) {
      KAPITSA_ASSIGN(item, attribute_path(rt, std::move(item), *a[1]));
    }
    KAPITSA_ASSIGN(const Str text, rt.text_of(item));
    KAPITSA_TRY(rt.charge_bytes(out.size() + text.size() + separator.size() > rt.max_bytes()
                                    ? rt.max_bytes() + 1
                                    : text.size() + separator.size()));
    if (i > 0) out.append(separator);
    out.append(text);
  }
  return Value(std::move(out));
}

Result<Value> filter_list(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(std::vector<Value> items, rt.items_of(self));
  return Value::list(std::move(items));
}

Result<Value> filter_items(Runtime&, const Value& self, const Arguments&) {
  std::vector<Value> pairs;
  if (self.is_undefined()) return Value::list({});
  if (!self.is_dict()) return Runtime::error("items() can only be used on a mapping");
  for (const auto& [key, value] : self.as_dict()->entries())
    pairs.push_back(Value::tuple({key, value}));
  return Value::list(std::move(pairs));
}

Result<Value> filter_first(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(std::vector<Value> items, rt.items_of(self));
  return items.empty() ? Value::undefined("the sequence has no first item") : items.front();
}

Result<Value> filter_last(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(std::vector<Value> items, rt.items_of(self));
  return items.empty() ? Value::undefined("the sequence has no last item") : items.back();
}

Result<Value> filter_reverse(Runtime& rt, const Value& self, const Arguments&) {
  KAPITSA_ASSIGN(std::vector<Value> items, rt.items_of(self));
  std::reverse(items.begin(), items.end());
  if (!self.is_string()) return Value::list(std::move(items));
  Str out;
  for (const Value& item : items)
    out.append(item.string());
  return Value(std::move(out));
}

// What sorting looks at: the attribute, lower case unless asked otherwise.
Result<Value> sort_key(Runtime& rt, const Value& item, const Value* attribute,
                       bool case_sensitive) {
  Value key = item;
  if (attribute && !attribute->is_none()) {
    KAPITSA_ASSIGN(key, attribute_path(rt, item, *attribute));
  }
  if (key.is_string() && !case_sensitive) return Value(map_case(key.string(), false));
  return key;
}

// Stable. After a comparison has failed, the order no longer matters, and nothing is less than
// anything.
Status sort_by_key(Runtime& rt, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  Status status;
  const auto less = [&](const auto& a, const auto& b) {
    if (!status) return false;
    const auto& left = reverse ? b.first : a.first;
    const auto& right = reverse ? a.first : b.first;
    const Result<Order> order = rt.order(left, right);
    if (!order)
      status = order.error();
    else if (*order == Order::incomparable)
      status = Runtime::error(fmt::format("'<' not supported between instances of '{}' and '{}'",
                                          left.type_name(), right.type_name()));
    return status.ok() && *order == Order::less;
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  return status;
}

Result<Value> filter_sort(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    KAPITSA_ASSIGN(Value key, sort_key(rt, item, a[2], flag(a[1])));
    keyed.emplace_back(std::move(key), item);
  }
  KAPITSA_TRY(sort_by_key(rt, keyed, flag(a[0])));
  std::vector<Value> sorted;
  for (auto& [key, item] : keyed)
    sorted.push_back(std::move(item));
  return Value::list(std::move(sorted));
}

Result<Value> filter_dictsort(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  const std::string_view by = a[1] && a[1]->is_string() ? a[1]->string().view() : "key";
  if (by != "key" && by != "value") return Runtime::error("dictsort() by must be key or value");
  if (!self.is_dict()) return Runtime::error("dictsort() can only be used on a mapping");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : self.as_dict()->entries()) {
    KAPITSA_ASSIGN(Value by_key, sort_key(rt, by == "key" ? key : value, nullptr, flag(a[0])));
    keyed.emplace_back(std::move(by_key), Value::tuple({key, value}));
  }
  KAPITSA_TRY(sort_by_key(rt, keyed, flag(a[2])));
  std::vector<Value> sorted;
  for (auto& [key, pair] : keyed)
    sorted.push_back(std::move(pair));
  return Value::list(std::move(sorted));
}

Result<Value> filter_unique(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("unique", arguments, {"case_sensitive", "attribute"}));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  std::vector<Value> kept;
  const auto seen = std::make_shared<Dict>();
  for (const Value& item : items) {
    KAPITSA_ASSIGN(const Value key, sort_key(rt, item, a[1], flag(a[0])));
    if (!Dict::hashable(key))
      return Runtime::error(fmt::format("unhashable type: '{}'", key.type_name()));
    if (seen->find(key)) continue;
    seen->set(key, true);
    kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

// Calls f(item) for the item, or for its attribute in the *attr variants, and the rest of the
// arguments as a test.
Result<Value> select(Runtime& rt, const Value& self, const Arguments& arguments, bool by_attribute,
                     bool keep) {
  if (!self.truthy()) return Value::list({});  // none, too: jinja2 looks before it iterates
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  const size_t n_own = by_attribute ? 1 : 0;
  if (arguments.positional.size() < n_own)
    return Runtime::error("selectattr() needs the name of an attribute");
  Arguments test_arguments;
  std::optional<std::string> test;
  if (arguments.positional.size() > n_own) {
    KAPITSA_ASSIGN(const Str* name, as_string("name of a test", arguments.positional[n_own]));
    test = name->text();
    test_arguments.positional.assign(arguments.positional.begin() +
                                         static_cast<std::ptrdiff_t>(n_own) + 1,
                                     arguments.positional.end());
  }
  std::vector<Value> kept;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      KAPITSA_ASSIGN(subject, attribute_path(rt, item, arguments.positional[0]));
    }
    bool holds = subject.truthy();
    if (test) {
      KAPITSA_ASSIGN(holds, rt.test(*test, subject, test_arguments));
    }
    if (holds == keep) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Result<Value> filter_select(Runtime& rt, const Value& self, const Arguments& arguments) {
  return select(rt, self, arguments, false, true);
}
Result<Value> filter_reject(Runtime& rt, const Value& self, const Arguments& arguments) {
  return select(rt, self, arguments, false, false);
}
Result<Value> filter_selectattr(Runtime& rt, const Value& self, const Arguments& arguments) {
  return select(rt, self, arguments, true, true);
}
Result<Value> filter_rejectattr(Runtime& rt, const Value& self, const Arguments& arguments) {
  return select(rt, self, arguments, true, false);
}

Result<Value> filter_map(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (!self.truthy()) return Value::list({});
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    KAPITSA_ASSIGN(const auto a, bind("map", arguments, {"attribute", "default"}, 1));
    for (const Value& item : items) {
      KAPITSA_ASSIGN(Value value, attribute_path(rt, item, *a[0]));
      if (value.is_undefined() && a[1]) value = *a[1];
      mapped.push_back(std::move(value));
    }
    return Value::list(std::move(mapped));
  }
  KAPITSA_ASSIGN(const Str* name, as_string("name of a filter", arguments.positional[0]));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    KAPITSA_ASSIGN(Value value, rt.filter(name->view(), item, rest));
    mapped.push_back(std::move(value));
  }
  return Value::list(std::move(mapped));
}

Result<Value> extreme(Runtime& rt, const Value& self, const Arguments& arguments, Order wanted) {
  KAPITSA_ASSIGN(const auto a, bind("min/max", arguments, {"case_sensitive", "attribute"}));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  if (items.empty()) return Value::undefined("the sequence is empty");
  size_t best = 0;
  KAPITSA_ASSIGN(Value best_key, sort_key(rt, items[0], a[1], flag(a[0])));
  for (size_t i = 1; i < items.size(); ++i) {
    KAPITSA_ASSIGN(Value key, sort_key(rt, items[i], a[1], flag(a[0])));
    KAPITSA_ASSIGN(const Order order, rt.order(key, best_key));
    if (order == Order::incomparable) return Runtime::error("values cannot be compared");
    if (order != wanted) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Result<Value> filter_min(Runtime& rt, const Value& self, const Arguments& arguments) {
  return extreme(rt, self, arguments, Order::less);
}
Result<Value> filter_max(Runtime& rt, const Value& self, const Arguments& arguments) {
  return extreme(rt, self, arguments, Order::greater);
}

Result<Value> filter_sum(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("sum", arguments, {"attribute", "start"}));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(self));
  Value total = a[1] ? *a[1] : Value(0);
  for (const Value& item : items) {
    Value term = item;
    if (a[0] && !a[0]->is_none()) {
      KAPITSA_ASSIGN(term, attribute_path(rt, item, *a[0]));
    }
    KAPITSA_ASSIGN(total, rt.binary("+", total, term));
  }
  return total;
}

constexpr NamedBuiltin kFilters[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"default", filter_default},
    {"d", filter_default},
    {"join", filter_join},
    {"list", filter_list},
    {"items", filter_items},
    {"first", filter_first},
    {"last", filter_last},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"map", filter_map},
    {"min", filter_min},
    {"max", filter_max},
    {"sum", filter_sum},
};

}  // namespace

Builtin find_sequence_filter(std::string_view name) {
  return find_in(std::begin(kFilters), std::end(kFilters), name);
}

Builtin find_filter(std::string_view name) {
  const Builtin found = find_text_filter(name);
  return found ? found : find_sequence_filter(name);
}

}  // namespace kapitsa::text::jinja
