// What may follow `is`, and the operators under their names for selectattr() and friends.
#include "text/jinja/builtins.h"

#include <fmt/format.h>

namespace kapitsa::text::jinja {

namespace {

using Kind = Value::Kind;

template <Kind kKind>
Result<Value> test_kind(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is(kKind));
}

Result<Value> test_defined(Runtime&, const Value& self, const Arguments&) {
  return Value(!self.is_undefined());
}
Result<Value> test_integer(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is(Kind::integer));
}
Result<Value> test_number(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is_number());
}
Result<Value> test_true(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is(Kind::boolean) && self.boolean());
}
Result<Value> test_false(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is(Kind::boolean) && !self.boolean());
}
Result<Value> test_iterable(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is_undefined() || self.is_string() || self.is_list() || self.is_dict() ||
               self.is(Kind::loop));
}
// What has a length and items by number; in Python a dict passes too.
Result<Value> test_sequence(Runtime&, const Value& self, const Arguments&) {
  return Value(self.is_undefined() || self.is_string() || self.is_list() || self.is_dict());
}

Result<Value> modulo(Runtime& rt, const Value& self, const Value& divisor, int64_t wanted) {
  KAPITSA_ASSIGN(const Value remainder, rt.binary("%", self, divisor));
  KAPITSA_ASSIGN(const bool same, rt.equals(remainder, wanted));
  return Value(same);
}
Result<Value> test_even(Runtime& rt, const Value& self, const Arguments&) {
  return modulo(rt, self, 2, 0);
}
Result<Value> test_odd(Runtime& rt, const Value& self, const Arguments&) {
  return modulo(rt, self, 2, 1);
}
Result<Value> test_divisibleby(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("divisibleby", arguments, {"num"}, 1));
  return modulo(rt, self, *a[0], 0);
}

Result<Value> cased(const Value& self, bool upper) {
  if (!self.is_string()) return Value(false);
  const bool same = map_case(self.string(), upper).view() == self.string().view();
  const bool has_case = map_case(self.string(), !upper).view() != self.string().view();
  return Value(same && has_case);
}
Result<Value> test_lower(Runtime&, const Value& self, const Arguments&) {
  return cased(self, false);
}
Result<Value> test_upper(Runtime&, const Value& self, const Arguments&) {
  return cased(self, true);
}

Result<Value> test_in(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("in", arguments, {"seq"}, 1));
  KAPITSA_ASSIGN(const bool inside, rt.contains(*a[0], self));
  return Value(inside);
}
Result<Value> test_sameas(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("sameas", arguments, {"other"}, 1));
  if (self.address() || a[0]->address()) return Value(self.address() == a[0]->address());
  if (self.kind() != a[0]->kind()) return Value(false);
  KAPITSA_ASSIGN(const bool same, rt.equals(self, *a[0]));
  return Value(same);
}
Result<Value> test_equal(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("eq", arguments, {"other"}, 1));
  KAPITSA_ASSIGN(const bool same, rt.equals(self, *a[0]));
  return Value(same);
}
Result<Value> test_not_equal(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("ne", arguments, {"other"}, 1));
  KAPITSA_ASSIGN(const bool same, rt.equals(self, *a[0]));
  return Value(!same);
}

Result<Order> order_with(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const auto a, bind("comparison", arguments, {"other"}, 1));
  KAPITSA_ASSIGN(const Order order, rt.order(self, *a[0]));
  if (order == Order::incomparable && !(self.is_number() && a[0]->is_number()))
    return Runtime::error(
        fmt::format("'{}' and '{}' cannot be compared", self.type_name(), a[0]->type_name()));
  return order;
}
Result<Value> test_less(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const Order order, order_with(rt, self, arguments));
  return Value(order == Order::less);
}
Result<Value> test_less_equal(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const Order order, order_with(rt, self, arguments));
  return Value(order == Order::less || order == Order::equal);
}
Result<Value> test_greater(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const Order order, order_with(rt, self, arguments));
  return Value(order == Order::greater);
}
Result<Value> test_greater_equal(Runtime& rt, const Value& self, const Arguments& arguments) {
  KAPITSA_ASSIGN(const Order order, order_with(rt, self, arguments));
  return Value(order == Order::greater || order == Order::equal);
}

constexpr NamedBuiltin kTests[] = {
    {"defined", test_defined},
    {"undefined", test_kind<Kind::undefined>},
    {"none", test_kind<Kind::none>},
    {"string", test_kind<Kind::string>},
    {"mapping", test_kind<Kind::dict>},
    {"boolean", test_kind<Kind::boolean>},
    {"float", test_kind<Kind::real>},
    {"callable", test_kind<Kind::function>},
    {"integer", test_integer},
    {"number", test_number},
    {"true", test_true},
    {"false", test_false},
    {"iterable", test_iterable},
    {"sequence", test_sequence},
    {"even", test_even},
    {"odd", test_odd},
    {"divisibleby", test_divisibleby},
    {"lower", test_lower},
    {"upper", test_upper},
    {"in", test_in},
    {"sameas", test_sameas},
    {"eq", test_equal},
    {"equalto", test_equal},
    {"==", test_equal},
    {"ne", test_not_equal},
    {"!=", test_not_equal},
    {"lt", test_less},
    {"lessthan", test_less},
    {"<", test_less},
    {"le", test_less_equal},
    {"<=", test_less_equal},
    {"gt", test_greater},
    {"greaterthan", test_greater},
    {">", test_greater},
    {"ge", test_greater_equal},
    {">=", test_greater_equal},
};

}  // namespace

Builtin find_test(std::string_view name) {
  return find_in(std::begin(kTests), std::end(kTests), name);
}

}  // namespace kapitsa::text::jinja
