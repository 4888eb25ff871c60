// Evaluation of expression nodes. Every node costs a step, and what it makes costs by its size, so
// that no template can run or grow without bound.
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::text::jinja {

Result<Value> Runtime::eval(const Expr& expr) {
  ++depth_;
  Result<Value> value = depth_ > limits_.max_depth
                            ? error("the template is nested or recurses too deeply")
                            : eval_unchecked(expr);
  --depth_;
  KAPITSA_TRY(charge());
  if (!value) return value;
  const bool makes = expr.kind != Expr::Kind::constant && expr.kind != Expr::Kind::name &&
                     expr.kind != Expr::Kind::attribute;
  if (makes && value->is_string()) KAPITSA_TRY(charge_bytes(value->string().size()));
  if (makes && value->is_list())
    KAPITSA_TRY(charge(static_cast<int64_t>(value->as_list()->items.size())));
  return value;
}

Result<Value> Runtime::eval_unchecked(const Expr& expr) {
  switch (expr.kind) {
  case Expr::Kind::constant: return expr.constant;
  case Expr::Kind::name: return eval_name(expr);
  case Expr::Kind::list: {
    KAPITSA_ASSIGN(std::vector<Value> items, eval_all(expr.args, 0));
    return Value::list(std::move(items));
  }
  case Expr::Kind::tuple: {
    KAPITSA_ASSIGN(std::vector<Value> items, eval_all(expr.args, 0));
    return Value::tuple(std::move(items));
  }
  case Expr::Kind::dict: return eval_dict(expr);
  case Expr::Kind::attribute: {
    KAPITSA_ASSIGN(const Value object, eval(*expr.args[0]));
    return attribute(object, expr.name);
  }
  case Expr::Kind::item: {
    KAPITSA_ASSIGN(const Value object, eval(*expr.args[0]));
    KAPITSA_ASSIGN(const Value key, eval(*expr.args[1]));
    return item(object, key);
  }
  case Expr::Kind::slice: return eval_slice(expr);
  case Expr::Kind::call: {
    KAPITSA_ASSIGN(const Value callee, eval(*expr.args[0]));
    KAPITSA_ASSIGN(const Arguments arguments, eval_arguments(expr));
    return call(callee, arguments);
  }
  case Expr::Kind::filter: return eval_filter_chain(expr, Value());
  case Expr::Kind::test: {
    KAPITSA_ASSIGN(const Value value, eval(*expr.args[0]));
    KAPITSA_ASSIGN(const Arguments arguments, eval_arguments(expr));
    KAPITSA_ASSIGN(const bool result, test(expr.name, value, arguments));
    return Value(result);
  }
  case Expr::Kind::negate:
  case Expr::Kind::plus: return eval_unary(expr);
  case Expr::Kind::logical_not: {
    KAPITSA_ASSIGN(const Value value, eval(*expr.args[0]));
    return Value(!value.truthy());
  }
  case Expr::Kind::logical_and:
  case Expr::Kind::logical_or: {
    KAPITSA_ASSIGN(Value left, eval(*expr.args[0]));
    if (left.truthy() == (expr.kind == Expr::Kind::logical_or)) return left;
    return eval(*expr.args[1]);
  }
  case Expr::Kind::binary: {
    KAPITSA_ASSIGN(const Value left, eval(*expr.args[0]));
    KAPITSA_ASSIGN(const Value right, eval(*expr.args[1]));
    return binary(expr.name, left, right);
  }
  case Expr::Kind::concat: return eval_concat(expr);
  case Expr::Kind::compare: return eval_compare(expr);
  case Expr::Kind::condition: return eval_condition(expr);
  }
  return Value();
}

Result<Value> Runtime::eval_name(const Expr& expr) {
  if (const Value* value = find(expr.name)) return *value;
  if (find_function(expr.name)) {
    auto function = std::make_shared<Function>();
    function->name = expr.name;
    return Value(std::shared_ptr<const Function>(std::move(function)));
  }
  return Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Result<Value> Runtime::eval_dict(const Expr& expr) {
  Value dict = Value::dict();
  for (size_t i = 0; i < expr.args.size(); i += 2) {
    KAPITSA_ASSIGN(const Value key, eval(*expr.args[i]));
    KAPITSA_ASSIGN(Value value, eval(*expr.args[i + 1]));
    if (!Dict::hashable(key)) return error(fmt::format("unhashable type: '{}'", key.type_name()));
    dict.as_dict()->set(key, std::move(value));
  }
  return dict;
}

Result<Value> Runtime::eval_unary(const Expr& expr) {
  KAPITSA_ASSIGN(const Value value, eval(*expr.args[0]));
  const bool negate = expr.kind == Expr::Kind::negate;
  if (!value.is_number())
    return error(
        fmt::format("bad operand type for unary {}: '{}'", negate ? '-' : '+', value.type_name()));
  if (value.is(Value::Kind::real)) return Value(negate ? -value.real() : value.real());
  if (negate) return binary("-", 0, value);
  return Value(value.integral());
}

// Python's slice.indices() and the picking.
Result<Value> Runtime::eval_slice(const Expr& expr) {
  KAPITSA_ASSIGN(const Value object, eval(*expr.args[0]));
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.args[i + 1]) continue;
    KAPITSA_ASSIGN(const Value bound, eval(*expr.args[i + 1]));
    if (bound.is_none()) continue;
    KAPITSA_ASSIGN(bounds[i], as_integer("slice index", bound));
  }
  if (object.is_undefined()) return attribute(object, "slice");
  if (!object.is_string() && !object.is_list())
    return error(fmt::format("'{}' object cannot be sliced", object.type_name()));
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) return error("slice step cannot be zero");

  std::vector<size_t> offsets;
  if (object.is_string()) offsets = object.string().codepoint_offsets();
  const auto n = static_cast<int64_t>(object.is_string() ? offsets.size() - 1
                                                         : object.as_list()->items.size());
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? n : n - 1;
  const auto clip = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    return std::clamp(*bound < 0 ? std::max(*bound, -n) + n - (*bound < -n ? 1 : 0) : *bound, low,
                      high);
  };
  const int64_t begin = clip(bounds[0], step > 0 ? low : high);
  const int64_t end = clip(bounds[1], step > 0 ? high : low);

  const bool markup = object.is_string() && object.string().is_markup();
  if (object.is_string() && step == 1) {
    Str part;
    if (begin < end)
      part.append(object.string(), offsets[static_cast<size_t>(begin)],
                  offsets[static_cast<size_t>(end)]);
    part.set_markup(markup);
    return Value(std::move(part));
  }
  Str text;
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    const auto at = static_cast<size_t>(i);
    if (object.is_string())
      text.append(object.string(), offsets[at], offsets[at + 1]);
    else
      items.push_back(object.as_list()->items[at]);
    // A step beyond the end ends the loop; compared this way, it cannot overflow.
    if (step > 0 ? step >= end - i : step <= end - i) break;
    i += step;
  }
  text.set_markup(markup);
  if (object.is_string()) return Value(std::move(text));
  return object.as_list()->is_tuple ? Value::tuple(std::move(items))
                                    : Value::list(std::move(items));
}

Result<Value> Runtime::eval_concat(const Expr& expr) {
  Str text;
  for (const Expr* arg : expr.args) {
    KAPITSA_ASSIGN(const Value value, eval(*arg));
    KAPITSA_ASSIGN(const Str part, text_of(value));
    if (text.size() + part.size() > max_bytes())
      return error(fmt::format("a string is longer than {} bytes", max_bytes()));
    text.append(part);
  }
  return Value(std::move(text));
}

Result<Value> Runtime::eval_condition(const Expr& expr) {
  KAPITSA_ASSIGN(const Value condition, eval(*expr.args[1]));
  if (condition.truthy()) return eval(*expr.args[0]);
  if (expr.args[2]) return eval(*expr.args[2]);
  return Value::undefined("the inline if-expression evaluated to false and has no else part");
}

Result<Value> Runtime::eval_compare(const Expr& expr) {
  KAPITSA_ASSIGN(Value left, eval(*expr.args[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    KAPITSA_ASSIGN(Value right, eval(*expr.args[i + 1]));
    KAPITSA_ASSIGN(const bool holds, compare_values(expr.ops[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<bool> Runtime::compare_values(std::string_view op, const Value& left, const Value& right) {
  if (op == "==" || op == "!=") {
    KAPITSA_ASSIGN(const bool same, equals(left, right));
    return same == (op == "==");
  }
  if (op == "in" || op == "not in") {
    KAPITSA_ASSIGN(const bool inside, contains(right, left));
    return inside == (op == "in");
  }
  for (const Value* value : {&left, &right})
    if (value->is_undefined() && value->undefined_what()) return error(*value->undefined_what());
  KAPITSA_ASSIGN(const Order order, this->order(left, right));
  if (order == Order::incomparable) {
    if (left.is_number() && right.is_number()) return false;  // NaN
    return error(fmt::format("'{}' not supported between instances of '{}' and '{}'", op,
                             left.type_name(), right.type_name()));
  }
  if (op == "<") return order == Order::less;
  if (op == "<=") return order != Order::greater;
  if (op == ">") return order == Order::greater;
  return order != Order::less;
}

Result<Value> Runtime::eval_filter_chain(const Expr& expr, const Value& innermost) {
  Value value = innermost;
  if (expr.args[0] && expr.args[0]->kind == Expr::Kind::filter) {
    KAPITSA_ASSIGN(value, eval_filter_chain(*expr.args[0], innermost));
  } else if (expr.args[0]) {
    KAPITSA_ASSIGN(value, eval(*expr.args[0]));
  }
  KAPITSA_TRY(charge());
  KAPITSA_ASSIGN(const Arguments arguments, eval_arguments(expr));
  KAPITSA_ASSIGN(Value result, filter(expr.name, value, arguments));
  if (result.is_string()) KAPITSA_TRY(charge_bytes(result.string().size()));
  if (result.is_list()) KAPITSA_TRY(charge(static_cast<int64_t>(result.as_list()->items.size())));
  return result;
}

Result<std::vector<Value>> Runtime::eval_all(const std::vector<const Expr*>& exprs, size_t first) {
  std::vector<Value> values;
  values.reserve(exprs.size() - first);
  for (size_t i = first; i < exprs.size(); ++i) {
    KAPITSA_ASSIGN(Value value, eval(*exprs[i]));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Arguments> Runtime::eval_arguments(const Expr& expr) {
  Arguments arguments;
  KAPITSA_ASSIGN(arguments.positional, eval_all(expr.args, 1));
  for (const auto& [name, arg] : expr.kwargs) {
    KAPITSA_ASSIGN(Value value, eval(*arg));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

}  // namespace kapitsa::text::jinja
