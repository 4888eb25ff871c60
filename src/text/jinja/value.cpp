// Construction, equality and order of values, and the destruction of containers. Printing is in
// format.cpp, attributes and methods are in methods.cpp.
#include "text/jinja/value.h"

#include <fmt/format.h>

#include <cmath>

namespace kapitsa::text::jinja {

namespace {

constexpr int kMaxCompareDepth = 200;

// Containers that die while another one is being destroyed wait here, so that a chain of a million
// nested lists needs no stack.
void release(std::vector<Value>&& values) {
  thread_local std::vector<Value>* waiting = nullptr;
  if (waiting) {
    for (Value& value : values)
      if (value.address()) waiting->push_back(std::move(value));
    return;
  }
  std::vector<Value> queue = std::move(values);
  waiting = &queue;
  while (!queue.empty()) {
    const Value last = std::move(queue.back());
    queue.pop_back();
  }
  waiting = nullptr;
}

std::string key_identity(const Value& key) {
  switch (key.kind()) {
  case Value::Kind::string: return "s" + key.string().text();
  case Value::Kind::none: return "n";
  case Value::Kind::real: {
    const double number = key.real();
    if (number != std::floor(number) || std::abs(number) >= 9e18) return fmt::format("f{}", number);
    return fmt::format("i{}", static_cast<int64_t>(number));
  }
  default: return fmt::format("i{}", key.integral());
  }
}

bool equal_at(const Value& a, const Value& b, WorkLimit& limit, int depth);

bool equal_lists(const List& a, const List& b, WorkLimit& limit, int depth) {
  if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equal_at(a.items[i], b.items[i], limit, depth)) return false;
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, WorkLimit& limit, int depth) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (!other || !equal_at(value, *other, limit, depth)) return false;
  }
  return true;
}

bool equal_at(const Value& a, const Value& b, WorkLimit& limit, int depth) {
  if (!limit.spend() || depth > kMaxCompareDepth) {
    limit.left = -1;
    return false;
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integral() == b.integral();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
  case Value::Kind::undefined:
  case Value::Kind::none: return true;
  case Value::Kind::string: return a.string().view() == b.string().view();
  case Value::Kind::list: return equal_lists(*a.as_list(), *b.as_list(), limit, depth + 1);
  case Value::Kind::dict: return equal_dicts(*a.as_dict(), *b.as_dict(), limit, depth + 1);
  default: return a.address() == b.address();
  }
}

template <typename T>
Order order_of(const T& a, const T& b) {
  if (a < b) return Order::less;
  if (b < a) return Order::greater;
  return a == b ? Order::equal : Order::incomparable;
}

Order compare_at(const Value& a, const Value& b, WorkLimit& limit, int depth) {
  if (!limit.spend() || depth > kMaxCompareDepth) {
    limit.left = -1;
    return Order::incomparable;
  }
  if (a.is_integral() && b.is_integral()) return order_of(a.integral(), b.integral());
  if (a.is_number() && b.is_number()) return order_of(a.number(), b.number());
  // Byte order of UTF-8 is code point order.
  if (a.is_string() && b.is_string()) return order_of(a.string().text(), b.string().text());
  if (!a.is_list() || !b.is_list() || a.as_list()->is_tuple != b.as_list()->is_tuple)
    return Order::incomparable;
  const auto& x = a.as_list()->items;
  const auto& y = b.as_list()->items;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i)
    if (!equal_at(x[i], y[i], limit, depth + 1)) return compare_at(x[i], y[i], limit, depth + 1);
  return order_of(x.size(), y.size());
}

}  // namespace

Value Value::undefined(std::string what) {
  Value value;
  std::get_if<Undefined>(&value.data_)->what = std::make_shared<const std::string>(std::move(what));
  return value;
}

Value Value::list(std::vector<Value> items) {
  return std::make_shared<List>(std::move(items));
}

Value Value::tuple(std::vector<Value> items) {
  return std::make_shared<List>(std::move(items), true);
}

Value Value::dict() {
  return std::make_shared<Dict>();
}

int64_t Value::integral() const {
  return is(Kind::boolean) ? (boolean() ? 1 : 0) : *get<int64_t>();
}

double Value::number() const {
  return is(Kind::real) ? real() : static_cast<double>(integral());
}

bool Value::truthy() const {
  switch (kind()) {
  case Kind::undefined:
  case Kind::none: return false;
  case Kind::boolean:
  case Kind::integer: return integral() != 0;
  case Kind::real: return real() != 0.0;
  case Kind::string: return !string().empty();
  case Kind::list: return !as_list()->items.empty();
  case Kind::dict: return as_dict()->size() > 0;
  default: return true;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
  case Kind::undefined: return "Undefined";
  case Kind::none: return "NoneType";
  case Kind::boolean: return "bool";
  case Kind::integer: return "int";
  case Kind::real: return "float";
  case Kind::string: return "str";
  case Kind::list: return as_list()->is_tuple ? "tuple" : "list";
  case Kind::dict: return "dict";
  case Kind::name_space: return "Namespace";
  case Kind::loop: return "LoopContext";
  case Kind::function: return "function";
  }
  return "?";
}

const void* Value::address() const {
  switch (kind()) {
  case Kind::list: return as_list().get();
  case Kind::dict: return as_dict().get();
  case Kind::name_space: return attributes().get();
  case Kind::loop: return &loop();
  case Kind::function: return &function();
  default: return nullptr;
  }
}

List::~List() {
  release(std::move(items));
}

Dict::~Dict() {
  clear();
}

void Dict::clear() {
  std::vector<Entry> entries = std::move(entries_);
  entries_.clear();
  index_.clear();
  std::vector<Value> values;
  values.reserve(entries.size());
  for (Entry& entry : entries)
    if (entry.second.address()) values.push_back(std::move(entry.second));
  release(std::move(values));
}

bool Dict::hashable(const Value& key) {
  return key.is_none() || key.is_number() || key.is_string();
}

size_t Dict::index_of(const std::string& id) const {
  const auto it = index_.find(id);
  return it == index_.end() ? entries_.size() : it->second;
}

const Value* Dict::find(std::string_view key) const {
  std::string id("s");
  id += key;
  const size_t i = index_of(id);
  return i < entries_.size() ? &entries_[i].second : nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (!hashable(key)) return nullptr;
  const size_t i = index_of(key_identity(key));
  return i < entries_.size() ? &entries_[i].second : nullptr;
}

void Dict::set(const Value& key, Value value) {
  KAPITSA_CHECK(hashable(key), "dict key is not hashable");
  const auto [it, inserted] = index_.emplace(key_identity(key), entries_.size());
  if (inserted)
    entries_.emplace_back(key, std::move(value));
  else
    entries_[it->second].second = std::move(value);
}

bool Dict::erase(const Value& key) {
  if (!hashable(key)) return false;
  const size_t i = index_of(key_identity(key));
  if (i == entries_.size()) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
  index_.clear();
  for (size_t k = 0; k < entries_.size(); ++k)
    index_.emplace(key_identity(entries_[k].first), k);
  return true;
}

bool equal(const Value& a, const Value& b, WorkLimit& limit) {
  return equal_at(a, b, limit, 0);
}

Order compare(const Value& a, const Value& b, WorkLimit& limit) {
  return compare_at(a, b, limit, 0);
}

}  // namespace kapitsa::text::jinja
