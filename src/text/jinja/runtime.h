// One rendering: scopes, output, and the budget. Internal to this folder; builtins reach the
// interpreter through the services that are public here. Not shared between threads.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/template.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using Variables = std::vector<std::pair<std::string, Value>>;

struct MacroData {
  const Stmt* stmt = nullptr;
  Variables captured;  // what the macro sees of the scopes around it, without the global one
};

class Runtime {
public:
  explicit Runtime(RenderInput input);  // owns the containers of the input
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Result<Str> render(const Ast& ast);

  // ---- services for builtins ----
  // An error of one line; it gets the template line where it surfaces.
  static Error error(std::string message);
  Status charge(int64_t units = 1);
  Status
  charge_bytes(size_t bytes);  // before making a string that may be much longer than its parts
  size_t max_bytes() const { return limits_.max_bytes; }
  const std::optional<std::tm>& now() const { return now_; }

  Result<Str> text_of(const Value& value);  // str(value)
  Result<bool> equals(const Value& a, const Value& b);
  Result<Order> order(const Value& a, const Value& b);
  Result<bool> contains(const Value& container, const Value& item);
  // What a loop over the value visits.
  Result<std::vector<Value>> items_of(const Value& value);
  Result<Value> attribute(const Value& object, std::string_view name);  // object.name
  Result<Value> item(const Value& object, const Value& key);            // object[key]
  Result<Value> binary(std::string_view op, const Value& left, const Value& right);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> filter(std::string_view name, const Value& value, const Arguments& arguments);
  Result<bool> test(std::string_view name, const Value& value, const Arguments& arguments);
  // To be called before a container gets a new element: lets the end of the rendering break cycles.
  void will_change(const Value& container) { changed_.push_back(container); }

private:
  enum class Flow { normal, break_loop, continue_loop };
  struct Scope {
    Variables variables;
    bool is_function = false;  // names beyond it are only the global ones
  };
  class Nesting;

  // runtime.cpp: statements
  Result<Flow> run(const std::vector<const Stmt*>& body);
  Result<Flow> run(const Stmt& stmt);
  Result<Flow> run_if(const Stmt& stmt);
  Result<Flow> run_for(const Stmt& stmt);
  Result<Flow> run_captured(const Stmt& stmt, Str& text);  // body in a scope of its own
  Status run_set_block(const Stmt& stmt);
  Status run_filter(const Stmt& stmt);
  Status run_call_block(const Stmt& stmt);
  Status write(const Str& text);
  Status assign(const Expr& target, Value value);
  Status unpack(const Expr& target, const Value& value);
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  Value make_macro(const Stmt& stmt) const;
  Result<Value> call_macro(const MacroData& macro, const Arguments& arguments);

  // eval.cpp: expressions
  Result<Value> eval(const Expr& expr);
  Result<Value> eval_unchecked(const Expr& expr);
  Result<Value> eval_name(const Expr& expr);
  Result<Value> eval_dict(const Expr& expr);
  Result<Value> eval_slice(const Expr& expr);
  Result<Value> eval_unary(const Expr& expr);
  Result<Value> eval_compare(const Expr& expr);
  Result<Value> eval_concat(const Expr& expr);
  Result<Value> eval_condition(const Expr& expr);
  Result<Value> eval_filter_chain(const Expr& expr, const Value& innermost);
  Result<std::vector<Value>> eval_all(const std::vector<const Expr*>& exprs, size_t first);
  Result<Arguments> eval_arguments(const Expr& expr);
  Result<bool> compare_values(std::string_view op, const Value& left, const Value& right);

  RenderLimits limits_;
  std::optional<std::tm> now_;
  int64_t steps_left_;
  int depth_ = 0;
  std::vector<Scope> scopes_;  // [0] holds the global variables
  Str output_;
  Str* out_ = &output_;
  std::vector<Value> changed_;
};

}  // namespace kapitsa::text::jinja
