// Methods of dict, list and the loop variable, and the global functions.
#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace kapitsa::text::jinja {

namespace {

// ---- dict ----
Result<Value> method_items(Runtime& rt, const Value& self, const Arguments&) {
  return rt.filter("items", self, {});
}
Result<Value> method_keys(Runtime& rt, const Value& self, const Arguments&) {
  return rt.filter("list", self, {});
}
Result<Value> method_values(Runtime&, const Value& self, const Arguments&) {
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict()->entries())
    values.push_back(value);
  return Value::list(std::move(values));
}
Result<Value> method_get(Runtime&, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("get", arguments, {"key", "default"}, 1));
  if (const Value* found = self.as_dict()->find(*a[0])) return *found;
  return a[1] ? *a[1] : Value(None{});
}
Result<Value> method_copy(Runtime&, const Value& self, const Arguments&) {
  if (self.is_list()) return Value::list(self.as_list()->items);
  Value copy = Value::dict();
  for (const auto& [key, value] : self.as_dict()->entries())
    copy.as_dict()->set(key, value);
  return copy;
}
Result<Value> method_update(Runtime& rt, const Value& self, const Arguments& arguments) {
  rt.will_change(self);
  Arguments rest = arguments;
  if (!rest.positional.empty()) {
    if (!rest.positional[0].is_dict() || rest.positional.size() > 1)
      return Runtime::error("update() takes one mapping");
    const Value copy = rest.positional[0];
    const std::vector<Dict::Entry> entries = copy.as_dict()->entries();
    for (const auto& [key, value] : entries)
      self.as_dict()->set(key, value);
  }
  for (const auto& [name, value] : rest.named)
    self.as_dict()->set(std::string_view(name), value);
  return Value(None{});
}
Result<Value> method_pop_key(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("pop", arguments, {"key", "default"}, 1));
  const Value* found = self.as_dict()->find(*a[0]);
  if (!found) return a[1] ? Result<Value>(*a[1]) : Runtime::error("pop() of a key that is missing");
  Value value = *found;
  KAPITSA_TRY(rt.charge(static_cast<int64_t>(self.as_dict()->size())));
  self.as_dict()->erase(*a[0]);
  return value;
}

constexpr NamedBuiltin kDictMethods[] = {
    {"items", method_items}, {"keys", method_keys}, {"values", method_values}, {"get", method_get},
    {"pop", method_pop_key}, {"copy", method_copy}, {"update", method_update},
};

// ---- list ----
Result<Value> method_append(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("append", arguments, {"item"}, 1));
  rt.will_change(self);
  self.as_list()->items.push_back(*a[0]);
  return Value(None{});
}
Result<Value> method_extend(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("extend", arguments, {"items"}, 1));
  KAPITSA_ASSIGN(const std::vector<Value> items, rt.items_of(*a[0]));
  rt.will_change(self);
  std::vector<Value>& own = self.as_list()->items;
  own.insert(own.end(), items.begin(), items.end());
  return Value(None{});
}
Result<Value> method_insert(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("insert", arguments, {"index", "item"}, 2));
  KAPITSA_ASSIGN(int64_t index, as_integer("insert() index", *a[0]));
  std::vector<Value>& items = self.as_list()->items;
  const auto n = static_cast<int64_t>(items.size());
  KAPITSA_TRY(rt.charge(n));
  rt.will_change(self);
  if (index < 0) index = std::max<int64_t>(index, -n) + n;
  items.insert(items.begin() + std::min(index, n), *a[1]);
  return Value(None{});
}
Result<Value> method_pop_item(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("pop", arguments, {"index"}));
  std::vector<Value>& items = self.as_list()->items;
  const auto n = static_cast<int64_t>(items.size());
  int64_t index = -1;
  if (a[0]) {
    KAPITSA_ASSIGN(index, as_integer("pop() index", *a[0]));
  }
  if (index < -n || index >= n) return Runtime::error("pop() index is out of range");
  if (index < 0) index += n;
  KAPITSA_TRY(rt.charge(n - index));
  Value value = items[static_cast<size_t>(index)];
  items.erase(items.begin() + index);
  return value;
}
Result<Value> method_index(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("index", arguments, {"item"}, 1));
  const std::vector<Value>& items = self.as_list()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    KAPITSA_ASSIGN(const bool same, rt.equals(items[i], *a[0]));
    if (same) return Value(static_cast<int64_t>(i));
  }
  return Runtime::error("index() of an item that is not in the list");
}
Result<Value> method_count(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("count", arguments, {"item"}, 1));
  int64_t n = 0;
  for (const Value& item : self.as_list()->items) {
    KAPITSA_ASSIGN(const bool same, rt.equals(item, *a[0]));
    n += same ? 1 : 0;
  }
  return Value(n);
}

constexpr NamedBuiltin kTupleMethods[] = {{"index", method_index}, {"count", method_count}};
constexpr NamedBuiltin kListMethods[] = {
    {"append", method_append}, {"pop", method_pop_item}, {"extend", method_extend},
    {"insert", method_insert}, {"index", method_index},  {"count", method_count},
    {"copy", method_copy},
};

// ---- loop ----
Result<Value> method_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) return Runtime::error("cycle() needs arguments");
  return arguments.positional[self.loop().index0 % arguments.positional.size()];
}

constexpr NamedBuiltin kLoopMethods[] = {{"cycle", method_cycle}};

// ---- functions ----
Result<Value> function_namespace(Runtime&, const Value&, const Arguments& arguments) {
  auto attributes = std::make_shared<Dict>();
  if (arguments.positional.size() > 1 ||
      (arguments.positional.size() == 1 && !arguments.positional[0].is_dict()))
    return Runtime::error("namespace() takes one mapping and keyword arguments");
  if (!arguments.positional.empty())
    for (const auto& [key, value] : arguments.positional[0].as_dict()->entries())
      attributes->set(key, value);
  for (const auto& [name, value] : arguments.named)
    attributes->set(std::string_view(name), value);
  return Value(Namespace{std::move(attributes)});
}

Result<Value> function_dict(Runtime& rt, const Value&, const Arguments& arguments) {
  const Value dict = Value::dict();
  KAPITSA_TRY(method_update(rt, dict, arguments));
  return dict;
}

Result<Value> function_range(Runtime& rt, const Value&, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("range", arguments, {"start", "stop", "step"}, 1));
  KAPITSA_ASSIGN(int64_t start, as_integer("range() argument", *a[0]));
  int64_t stop = start;
  int64_t step = 1;
  if (a[1]) {
    KAPITSA_ASSIGN(stop, as_integer("range() argument", *a[1]));
  } else {
    start = 0;
  }
  if (a[2]) {
    KAPITSA_ASSIGN(step, as_integer("range() argument", *a[2]));
  }
  if (step == 0) return Runtime::error("range() step must not be zero");
  constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange)
      return Runtime::error(fmt::format("range() has more than {} items", kMaxRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  KAPITSA_TRY(rt.charge(static_cast<int64_t>(items.size())));
  return Value::list(std::move(items));
}

Result<Value> function_raise_exception(Runtime& rt, const Value&, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("raise_exception", arguments, {"message"}, 1));
  KAPITSA_ASSIGN(const Str message, rt.text_of(*a[0]));
  return Runtime::error(message.text());
}

Result<Value> function_strftime_now(Runtime& rt, const Value&, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("strftime_now", arguments, {"format"}, 1));
  KAPITSA_ASSIGN(const Str* format, as_string("strftime_now() format", *a[0]));
  constexpr size_t kMaxFormatBytes = 1000;
  if (format->size() > kMaxFormatBytes || format->view().find('\0') != std::string_view::npos)
    return Runtime::error("strftime_now() format is too long or holds a zero byte");
  std::tm now{};
  if (rt.now()) {
    now = *rt.now();
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  // The space keeps an empty result apart from one that does not fit.
  const std::string padded = format->text() + " ";
  std::string text(64 * kMaxFormatBytes, '\0');
  text.resize(std::strftime(text.data(), text.size(), padded.c_str(), &now));
  if (text.empty()) return Runtime::error("strftime_now() result is too long");
  text.pop_back();
  return Value(Str(std::move(text)));
}

constexpr NamedBuiltin kFunctions[] = {
    {"namespace", function_namespace},
    {"raise_exception", function_raise_exception},
    {"strftime_now", function_strftime_now},
    {"range", function_range},
    {"dict", function_dict},
};

}  // namespace

Builtin find_function(std::string_view name) {
  return find_in(std::begin(kFunctions), std::end(kFunctions), name);
}

Builtin find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
  case Value::Kind::string: return find_string_method(name);
  case Value::Kind::dict: return find_in(std::begin(kDictMethods), std::end(kDictMethods), name);
  case Value::Kind::loop: return find_in(std::begin(kLoopMethods), std::end(kLoopMethods), name);
  case Value::Kind::list:
    return self.as_list()->is_tuple
               ? find_in(std::begin(kTupleMethods), std::end(kTupleMethods), name)
               : find_in(std::begin(kListMethods), std::end(kListMethods), name);
  default: return nullptr;
  }
}

}  // namespace kapitsa::text::jinja
