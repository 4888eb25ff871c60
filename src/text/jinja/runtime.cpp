// Statements, scopes and macros. Loops and macros have scopes of their own, `if` does not, as in
// Jinja; a macro called from elsewhere sees the global variables as they are at that time.
#include "text/jinja/runtime.h"

#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::text::jinja {

namespace {

constexpr int kMaxInputDepth = 200;

// The input tree without sharing, so that a template can change its copy only.
Result<Value> deep_copy(const Value& value, int depth = 0) {
  if (depth > kMaxInputDepth) return Runtime::error("a variable is nested too deeply");
  if (value.is_list()) {
    std::vector<Value> items;
    items.reserve(value.as_list()->items.size());
    for (const Value& item : value.as_list()->items) {
      KAPITSA_ASSIGN(Value copy, deep_copy(item, depth + 1));
      items.push_back(std::move(copy));
    }
    return value.as_list()->is_tuple ? Value::tuple(std::move(items))
                                     : Value::list(std::move(items));
  }
  if (!value.is_dict()) return value;
  Value copy = Value::dict();
  for (const auto& [key, entry] : value.as_dict()->entries()) {
    KAPITSA_ASSIGN(Value entry_copy, deep_copy(entry, depth + 1));
    copy.as_dict()->set(key, std::move(entry_copy));
  }
  return copy;
}

// Puts the line in front of a message, unless an inner node has done so.
Error located(const Error& error, int line) {
  if (error.message.starts_with("template line ")) return error;
  Error out = template_error(line, error.message);
  out.code = error.code;
  return out;
}

}  // namespace

class Runtime::Nesting {
public:
  explicit Nesting(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
  ~Nesting() { --runtime_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  Status check() const {
    if (runtime_.depth_ <= runtime_.limits_.max_depth) return {};
    return error("the template is nested or recurses too deeply");
  }

private:
  Runtime& runtime_;
};

Runtime::Runtime(RenderInput input)
    : limits_(input.limits), now_(input.now), steps_left_(input.limits.max_steps), scopes_(1) {
  scopes_[0].variables = std::move(input.variables);
}

Runtime::~Runtime() {
  // Only a changed container can be part of a cycle of owners.
  for (const Value& value : changed_) {
    if (value.is_list()) value.as_list()->items.clear();
    if (value.is_dict()) value.as_dict()->clear();
    if (value.is(Value::Kind::name_space)) value.attributes()->clear();
  }
}

Error Runtime::error(std::string message) {
  // raise_exception() can be given anything.
  std::replace_if(
      message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; },
      ' ');
  return {ErrorCode::invalid_argument, std::move(message)};
}

Status Runtime::charge(int64_t units) {
  steps_left_ -= units;
  if (steps_left_ >= 0) return {};
  return error(fmt::format("the template takes more than {} steps", limits_.max_steps));
}

Status Runtime::charge_bytes(size_t bytes) {
  if (bytes > limits_.max_bytes)
    return error(fmt::format("a string is longer than {} bytes", limits_.max_bytes));
  return charge(static_cast<int64_t>(bytes / 16));
}

Result<Str> Runtime::render(const Ast& ast) {
  auto flow = run(ast.body);
  if (!flow) return flow.error();
  return std::move(output_);
}

const Value* Runtime::find(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    for (const auto& [variable, value] : scopes_[i].variables)
      if (variable == name) return &value;
    if (scopes_[i].is_function) i = std::min<size_t>(i, 1);
  }
  return nullptr;
}

void Runtime::set(std::string_view name, Value value) {
  for (auto& [variable, old] : scopes_.back().variables) {
    if (variable != name) continue;
    old = std::move(value);
    return;
  }
  scopes_.back().variables.emplace_back(std::string(name), std::move(value));
}

Result<Runtime::Flow> Runtime::run(const std::vector<const Stmt*>& body) {
  for (const Stmt* stmt : body) {
    auto flow = run(*stmt);
    if (!flow) return located(flow.error(), stmt->line);
    if (*flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Result<Runtime::Flow> Runtime::run(const Stmt& stmt) {
  const Nesting nesting(*this);
  KAPITSA_TRY(nesting.check());
  KAPITSA_TRY(charge());
  switch (stmt.kind) {
  case Stmt::Kind::data: KAPITSA_TRY(write(stmt.text)); break;
  case Stmt::Kind::output: {
    KAPITSA_ASSIGN(const Value value, eval(*stmt.expr));
    KAPITSA_ASSIGN(const Str text, text_of(value));
    KAPITSA_TRY(write(text));
    break;
  }
  case Stmt::Kind::conditional: return run_if(stmt);
  case Stmt::Kind::loop: return run_for(stmt);
  case Stmt::Kind::set: {
    KAPITSA_ASSIGN(Value value, eval(*stmt.expr));
    KAPITSA_TRY(assign(*stmt.target, std::move(value)));
    break;
  }
  case Stmt::Kind::set_block: KAPITSA_TRY(run_set_block(stmt)); break;
  case Stmt::Kind::macro: set(stmt.name, make_macro(stmt)); break;
  case Stmt::Kind::filter: KAPITSA_TRY(run_filter(stmt)); break;
  case Stmt::Kind::with: {
    scopes_.emplace_back();
    auto flow = run(stmt.body);
    scopes_.pop_back();
    return flow;
  }
  case Stmt::Kind::group: return run(stmt.body);
  case Stmt::Kind::break_loop: return Flow::break_loop;
  case Stmt::Kind::continue_loop: return Flow::continue_loop;
  case Stmt::Kind::call_block: KAPITSA_TRY(run_call_block(stmt)); break;
  case Stmt::Kind::evaluate: {
    KAPITSA_ASSIGN(const Value ignored, eval(*stmt.expr));
    break;
  }
  }
  return Flow::normal;
}

Result<Runtime::Flow> Runtime::run_if(const Stmt& stmt) {
  for (const Stmt::Branch& branch : stmt.branches) {
    KAPITSA_ASSIGN(const Value condition, eval(*branch.condition));
    if (condition.truthy()) return run(branch.body);
  }
  return run(stmt.else_body);
}

Result<Runtime::Flow> Runtime::run_for(const Stmt& stmt) {
  KAPITSA_ASSIGN(const Value iterable, eval(*stmt.expr));
  KAPITSA_ASSIGN(std::vector<Value> items, items_of(iterable));
  if (stmt.condition) {
    std::vector<Value> kept;
    for (Value& item : items) {
      scopes_.emplace_back();
      Status assigned = assign(*stmt.target, item);
      Result<Value> keep = assigned ? eval(*stmt.condition) : Result<Value>(assigned.error());
      scopes_.pop_back();
      if (!keep) return keep.error();
      if (keep->truthy()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scopes_.emplace_back();
    auto flow = run(stmt.else_body);
    scopes_.pop_back();
    return flow;
  }
  const auto shared = std::make_shared<const std::vector<Value>>(std::move(items));
  for (size_t i = 0; i < shared->size(); ++i) {
    KAPITSA_TRY(charge());
    scopes_.emplace_back();
    set("loop", std::make_shared<const LoopState>(LoopState{shared, i}));
    Status assigned = assign(*stmt.target, (*shared)[i]);
    Result<Flow> flow = assigned ? run(stmt.body) : Result<Flow>(assigned.error());
    scopes_.pop_back();
    if (!flow) return flow;
    if (*flow == Flow::break_loop) break;
  }
  return Flow::normal;
}

Result<Runtime::Flow> Runtime::run_captured(const Stmt& stmt, Str& text) {
  Str* const outer = std::exchange(out_, &text);
  scopes_.emplace_back();
  auto flow = run(stmt.body);
  scopes_.pop_back();
  out_ = outer;
  return flow;
}

Status Runtime::run_set_block(const Stmt& stmt) {
  Str text;
  KAPITSA_TRY(run_captured(stmt, text));
  Value value(std::move(text));
  if (stmt.expr) {
    KAPITSA_ASSIGN(value, eval_filter_chain(*stmt.expr, value));
  }
  return assign(*stmt.target, std::move(value));
}

Status Runtime::run_filter(const Stmt& stmt) {
  Str text;
  KAPITSA_TRY(run_captured(stmt, text));
  KAPITSA_ASSIGN(const Value value, eval_filter_chain(*stmt.expr, Value(std::move(text))));
  KAPITSA_ASSIGN(const Str filtered, text_of(value));
  return write(filtered);
}

Status Runtime::run_call_block(const Stmt& stmt) {
  KAPITSA_ASSIGN(const Value callee, eval(*stmt.expr->args[0]));
  KAPITSA_ASSIGN(Arguments arguments, eval_arguments(*stmt.expr));
  arguments.named.emplace_back("caller", make_macro(stmt));
  KAPITSA_ASSIGN(const Value value, call(callee, arguments));
  KAPITSA_ASSIGN(const Str text, text_of(value));
  return write(text);
}

Status Runtime::write(const Str& text) {
  if (out_->size() + text.size() > limits_.max_bytes)
    return error(fmt::format("the output is longer than {} bytes", limits_.max_bytes));
  KAPITSA_TRY(charge_bytes(text.size()));
  out_->append(text);
  return {};
}

Status Runtime::assign(const Expr& target, Value value) {
  if (target.kind == Expr::Kind::tuple) return unpack(target, value);
  if (target.kind == Expr::Kind::name) {
    set(target.name, std::move(value));
    return {};
  }
  const std::string& object_name = target.args[0]->name;
  const Value* object = find(object_name);
  if (!object || !object->is(Value::Kind::name_space))
    return error(fmt::format("cannot assign attribute '{}': '{}' is not a namespace", target.name,
                             object_name));
  if (value.address()) will_change(*object);
  object->attributes()->set(std::string_view(target.name), std::move(value));
  return {};
}

Status Runtime::unpack(const Expr& target, const Value& value) {
  KAPITSA_ASSIGN(std::vector<Value> items, items_of(value));
  if (items.size() != target.args.size())
    return error(
        fmt::format("cannot unpack {} values into {} names", items.size(), target.args.size()));
  for (size_t i = 0; i < items.size(); ++i)
    KAPITSA_TRY(assign(*target.args[i], std::move(items[i])));
  return {};
}

Value Runtime::make_macro(const Stmt& stmt) const {
  auto data = std::make_shared<MacroData>();
  data->stmt = &stmt;
  for (size_t i = scopes_.size(); i-- > 1;) {
    for (const auto& [name, value] : scopes_[i].variables) {
      const auto same = [&n = name](const auto& v) { return v.first == n; };
      if (std::none_of(data->captured.begin(), data->captured.end(), same))
        data->captured.emplace_back(name, value);
    }
    if (scopes_[i].is_function) break;
  }
  auto function = std::make_shared<Function>();
  function->type = Function::Type::macro;
  function->name = stmt.name;
  function->macro = std::move(data);
  return std::shared_ptr<const Function>(std::move(function));
}

Result<Value> Runtime::call_macro(const MacroData& macro, const Arguments& arguments) {
  const Nesting nesting(*this);
  KAPITSA_TRY(nesting.check());
  const Stmt& stmt = *macro.stmt;
  const auto& params = stmt.params;
  if (arguments.positional.size() > params.size())
    return error(fmt::format("macro '{}' takes at most {} arguments, got {}", stmt.name,
                             params.size(), arguments.positional.size()));
  KAPITSA_TRY(charge(static_cast<int64_t>(macro.captured.size() + params.size())));
  Scope scope{macro.captured, true};
  for (const auto& [name, value] : arguments.named) {
    const auto same = [&n = name](const Stmt::Param& p) { return p.name == n; };
    const auto param = std::find_if(params.begin(), params.end(), same);
    if (param == params.end() && name != "caller")
      return error(fmt::format("macro '{}' takes no keyword argument '{}'", stmt.name, name));
    if (param != params.end() &&
        static_cast<size_t>(param - params.begin()) < arguments.positional.size())
      return error(fmt::format("macro '{}' got two values for '{}'", stmt.name, name));
  }
  scopes_.push_back(std::move(scope));
  Str text;
  Str* const outer = std::exchange(out_, &text);
  Status status;
  for (size_t i = 0; i < params.size() && status; ++i) {
    const auto same = [&](const auto& a) { return a.first == params[i].name; };
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(), same);
    if (i < arguments.positional.size()) {
      set(params[i].name, arguments.positional[i]);
    } else if (named != arguments.named.end()) {
      set(params[i].name, named->second);
    } else if (params[i].value) {
      Result<Value> value = eval(*params[i].value);
      if (!value)
        status = value.error();
      else
        set(params[i].name, std::move(*value));
    } else {
      set(params[i].name,
          Value::undefined(fmt::format("parameter '{}' was not provided", params[i].name)));
    }
  }
  for (const auto& [name, value] : arguments.named)
    if (name == "caller") set(name, value);
  Result<Flow> flow = status ? run(stmt.body) : Result<Flow>(status.error());
  out_ = outer;
  scopes_.pop_back();
  if (!flow) return flow.error();
  return Value(std::move(text));
}

Result<Value> Runtime::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) {
    const std::string* what = callee.undefined_what();
    return error(what ? *what : "an undefined value is not callable");
  }
  if (!callee.is(Value::Kind::function))
    return error(fmt::format("'{}' object is not callable", callee.type_name()));
  const Function& function = callee.function();
  switch (function.type) {
  case Function::Type::macro: return call_macro(*function.macro, arguments);
  case Function::Type::builtin: return find_function(function.name)(*this, Value(), arguments);
  case Function::Type::method:
    if (function.self.is_string() && function.self.string().is_markup())
      return call_markup_method(*this, function.name, function.self, arguments);
    return find_method(function.self, function.name)(*this, function.self, arguments);
  }
  return Value();
}

Result<Template> Template::parse(std::string_view source) {
  KAPITSA_ASSIGN(Ast ast, parse_template(source));
  Template result;
  result.ast_ = std::make_shared<const Ast>(std::move(ast));
  return result;
}

Result<Str> Template::render(const RenderInput& input) const {
  KAPITSA_CHECK(ast_ != nullptr, "render() of a template that was not parsed");
  RenderInput copy = input;
  for (auto& [name, value] : copy.variables) {
    KAPITSA_ASSIGN(value, deep_copy(value));
  }
  Runtime runtime(std::move(copy));
  return runtime.render(*ast_);
}

}  // namespace kapitsa::text::jinja
