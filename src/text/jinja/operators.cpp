// Operators, attributes and items with Python's meaning, on values that are already evaluated.
// Integers are 64 bits wide: what Python would grow beyond is an error here.
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kapitsa::text::jinja {

namespace {

Error overflow() {
  return Runtime::error("integer result does not fit in 64 bits");
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Runtime::error("0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    // With the base at -1, 0 or 1 the exponent may be anything, and squaring cannot overflow.
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value(result);
}

Result<Value> integer_binary(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return integer_power(a, b);
  } else if (b == 0) {
    return Runtime::error("division by zero");
  } else if (op == "/") {
    return Value(static_cast<double>(a) / static_cast<double>(b));
  } else if (b == -1) {  // INT64_MIN / -1 traps
    overflows = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);
  } else {
    const int64_t remainder = a % b;
    const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);  // floor, not truncate
    result = op == "%" ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
  }
  return overflows ? Result<Value>(overflow()) : Result<Value>(Value(result));
}

Result<Value> real_binary(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return Runtime::error("float division by zero");
  if (op == "/") return Value(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  return Value(op == "%" ? remainder : std::floor((a - remainder) / b + 0.5));
}

Result<Value> repeat(Runtime& runtime, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const auto n = static_cast<size_t>(count);
  if (value.is_string()) {
    const Str& text = value.string();
    if (!text.empty() && n > runtime.max_bytes() / text.size())
      return Runtime::error(fmt::format("a string is longer than {} bytes", runtime.max_bytes()));
    KAPITSA_TRY(runtime.charge_bytes(n * text.size()));
    Str out;
    for (size_t i = 0; i < n && !text.empty(); ++i)
      out.append(text);
    out.set_markup(text.is_markup());
    return Value(std::move(out));
  }
  const std::vector<Value>& items = value.as_list()->items;
  if (!items.empty() && n > runtime.max_bytes() / items.size())
    return Runtime::error("a list is too long");
  KAPITSA_TRY(runtime.charge(static_cast<int64_t>(n * items.size())));
  std::vector<Value> out;
  for (size_t i = 0; i < n && !items.empty(); ++i)
    out.insert(out.end(), items.begin(), items.end());
  return value.as_list()->is_tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

// Python's index of a sequence of n items; nothing when out of range.
std::optional<size_t> index_in(int64_t index, size_t n) {
  const auto size = static_cast<int64_t>(n);
  if (index < -size || index >= size) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + size : index);
}

Value loop_attribute(const LoopState& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index0);
  const auto n = static_cast<int64_t>(loop.items->size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return n - index;
  if (name == "revindex0") return n - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == n;
  if (name == "length") return n;
  if (name == "depth") return 1;  // only recursive loops, which are not supported, go deeper
  if (name == "depth0") return 0;
  if (name == "previtem")
    return index > 0 ? (*loop.items)[loop.index0 - 1]
                     : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < n ? (*loop.items)[loop.index0 + 1]
                         : Value::undefined("there is no next item");
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

Error undefined_error(const Value& value) {
  const std::string* what = value.undefined_what();
  return Runtime::error(what ? *what : "a value is undefined");
}

std::string object_name(const Value& value) {
  return value.is_none() ? "None" : fmt::format("{} object", value.type_name());
}

}  // namespace

Result<Str> Runtime::text_of(const Value& value) {
  KAPITSA_ASSIGN(Str text, to_str(value, limits_.max_bytes));
  if (!value.is_string()) KAPITSA_TRY(charge_bytes(text.size()));
  return text;
}

Result<bool> Runtime::equals(const Value& a, const Value& b) {
  WorkLimit limit{steps_left_};
  const bool result = equal(a, b, limit);
  steps_left_ = limit.left;
  KAPITSA_TRY(charge(0));
  return result;
}

Result<Order> Runtime::order(const Value& a, const Value& b) {
  WorkLimit limit{steps_left_};
  const Order result = compare(a, b, limit);
  steps_left_ = limit.left;
  KAPITSA_TRY(charge(0));
  return result;
}

Result<bool> Runtime::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
  case Value::Kind::undefined: return false;
  case Value::Kind::string:
    if (item.is_undefined()) return undefined_error(item);
    if (!item.is_string())
      return error(
          fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    KAPITSA_TRY(charge_bytes(container.string().size()));
    return container.string().view().find(item.string().view()) != std::string_view::npos;
  case Value::Kind::list:
    for (const Value& candidate : container.as_list()->items) {
      KAPITSA_ASSIGN(const bool same, equals(candidate, item));
      if (same) return true;
    }
    return false;
  case Value::Kind::dict:
    if (!Dict::hashable(item) && !item.is_undefined())
      return error(fmt::format("unhashable type: '{}'", item.type_name()));
    return container.as_dict()->find(item) != nullptr;
  default:
    return error(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
}

Result<std::vector<Value>> Runtime::items_of(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
  case Value::Kind::undefined: break;
  case Value::Kind::list: items = value.as_list()->items; break;
  case Value::Kind::dict:
    for (const auto& [key, entry] : value.as_dict()->entries())
      items.push_back(key);
    break;
  case Value::Kind::string: {
    const std::vector<size_t> offsets = value.string().codepoint_offsets();
    KAPITSA_TRY(charge(static_cast<int64_t>(offsets.size() * 4)));
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      items.push_back(value.string().substr(offsets[i], offsets[i + 1]));
    break;
  }
  default: return error(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  KAPITSA_TRY(charge(static_cast<int64_t>(items.size())));
  return items;
}

Result<Value> Runtime::binary(std::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right})
    if (value->is_undefined() && !(op == "%" && left.is_string())) return undefined_error(*value);
  if (op == "%" && left.is_string()) {
    const bool markup = left.string().is_markup();
    KAPITSA_ASSIGN(const Value values, markup ? escaped(*this, right) : Result<Value>(right));
    KAPITSA_ASSIGN(Str text, percent_format(left.string(), values, limits_.max_bytes));
    text.set_markup(markup);
    return Value(std::move(text));
  }
  if (left.is_integral() && right.is_integral())
    return integer_binary(op, left.integral(), right.integral());
  if (left.is_number() && right.is_number()) return real_binary(op, left.number(), right.number());
  const auto is_sequence = [](const Value& v) { return v.is_string() || v.is_list(); };
  if (op == "*" && is_sequence(left) && right.is_integral())
    return repeat(*this, left, right.integral());
  if (op == "*" && is_sequence(right) && left.is_integral())
    return repeat(*this, right, left.integral());
  if (op == "+" && left.is_string() && right.is_string()) {
    KAPITSA_TRY(charge_bytes(left.string().size() + right.string().size()));
    const bool markup = left.string().is_markup() || right.string().is_markup();
    KAPITSA_ASSIGN(const Value first, markup ? escaped(*this, left) : Result<Value>(left));
    KAPITSA_ASSIGN(const Value second, markup ? escaped(*this, right) : Result<Value>(right));
    Str text = first.string();
    text.append(second.string());
    text.set_markup(markup);
    return Value(std::move(text));
  }
  if (op == "+" && left.is_list() && right.is_list() &&
      left.as_list()->is_tuple == right.as_list()->is_tuple) {
    std::vector<Value> items = left.as_list()->items;
    const std::vector<Value>& more = right.as_list()->items;
    items.insert(items.end(), more.begin(), more.end());
    return left.as_list()->is_tuple ? Value::tuple(std::move(items))
                                    : Value::list(std::move(items));
  }
  return error(fmt::format("unsupported operand types for {}: '{}' and '{}'", op, left.type_name(),
                           right.type_name()));
}

Result<Value> Runtime::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  if (find_method(object, name)) {
    auto function = std::make_shared<Function>();
    function->type = Function::Type::method;
    function->name = name;
    function->self = object;
    return Value(std::shared_ptr<const Function>(std::move(function)));
  }
  if (object.is(Value::Kind::loop)) return loop_attribute(object.loop(), name);
  const Value* found = nullptr;
  if (object.is_dict()) found = object.as_dict()->find(name);
  if (object.is(Value::Kind::name_space)) found = object.attributes()->find(name);
  if (found) return *found;
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Result<Value> Runtime::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is_dict()) {
    if (const Value* found = object.as_dict()->find(key)) return *found;
  } else if (object.is_list() && key.is_integral()) {
    const std::vector<Value>& items = object.as_list()->items;
    if (const auto i = index_in(key.integral(), items.size())) return items[*i];
  } else if (object.is_string() && key.is_integral()) {
    const Str& text = object.string();
    const std::vector<size_t> offsets = text.codepoint_offsets();
    if (const auto i = index_in(key.integral(), offsets.size() - 1))
      return text.is_markup() ? marked(Value(text.substr(offsets[*i], offsets[*i + 1])))
                              : Value(text.substr(offsets[*i], offsets[*i + 1]));
  }
  // A key that is not there may name an attribute, as in Jinja.
  if (key.is_string()) return attribute(object, key.string().view());
  KAPITSA_ASSIGN(const Str shown, to_str(key, 1000));
  return Value::undefined(fmt::format("{} has no element {}", object_name(object), shown.view()));
}

Result<Value> Runtime::filter(std::string_view name, const Value& value,
                              const Arguments& arguments) {
  const Builtin function = find_filter(name);
  if (!function) return error(fmt::format("no filter named '{}'", name));
  return function(*this, value, arguments);
}

Result<bool> Runtime::test(std::string_view name, const Value& value, const Arguments& arguments) {
  const Builtin function = find_test(name);
  if (!function) return error(fmt::format("no test named '{}'", name));
  KAPITSA_ASSIGN(const Value result, function(*this, value, arguments));
  return result.truthy();
}

}  // namespace kapitsa::text::jinja
