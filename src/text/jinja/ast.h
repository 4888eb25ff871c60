// The parsed template. Nodes live in two deques of the Ast and point to each other, so that deep
// trees need no recursion to destroy. Immutable after parsing; shared by concurrent renders.
#pragma once

#include "base/result.h"
#include "text/jinja/value.h"

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa::text::jinja {

struct Expr {
  enum class Kind : uint8_t {
    constant,     // constant
    name,         // name
    list,         // args
    tuple,        // args
    dict,         // args: key, value, key, value, ...
    attribute,    // args[0] . name
    item,         // args[0] [ args[1] ]
    slice,        // args[0] [ args[1] : args[2] : args[3] ], the last three may be null
    call,         // args[0] ( args[1..], kwargs )
    filter,       // args[0] | name ( args[1..], kwargs ); args[0] null in a filter block
    test,         // args[0] is name ( args[1..] )
    negate,       // - args[0]
    plus,         // + args[0]
    logical_not,  // not args[0]
    logical_and,
    logical_or,
    binary,     // args[0] op args[1]
    concat,     // args joined by ~
    compare,    // args[0] ops[0] args[1] ops[1] args[2] ...
    condition,  // args[0] if args[1] else args[2]; args[2] may be null
  };
  Kind kind = Kind::constant;
  int line = 1;
  int depth = 1;  // of the tree below
  Value constant;
  std::string name;  // or the operator
  std::vector<const Expr*> args;
  std::vector<std::pair<std::string, const Expr*>> kwargs;
  std::vector<std::string> ops;
};

struct Stmt {
  enum class Kind : uint8_t {
    data,         // text
    output,       // expr
    conditional,  // branches; body of the else branch in else_body
    loop,         // for target in expr if condition: body, else_body
    set,          // target = expr
    set_block,    // target = rendered body, through filter if not null
    macro,        // name(params): body
    filter,       // expr (a filter chain) over body
    with,         // targets[i] = values[i]: body
    group,        // body
    break_loop,
    continue_loop,
    call_block,  // expr called with `caller`, which renders body
    evaluate,    // expr for its effect
  };
  struct Branch {
    const Expr* condition;
    std::vector<const Stmt*> body;
  };
  struct Param {
    std::string name;
    const Expr* value;  // null: no default
  };
  Kind kind = Kind::data;
  int line = 1;
  std::string name;
  Str text;
  const Expr* target = nullptr;  // name, tuple of targets, or attribute of a namespace
  const Expr* expr = nullptr;
  const Expr* condition = nullptr;
  std::vector<Branch> branches;
  std::vector<Param> params;
  std::vector<const Stmt*> body;
  std::vector<const Stmt*> else_body;
};

struct Ast {
  Ast() = default;
  Ast(Ast&&) noexcept = default;  // nodes keep their addresses
  Ast& operator=(Ast&&) noexcept = default;

  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::vector<const Stmt*> body;
};

Result<Ast> parse_template(std::string_view source);

}  // namespace kapitsa::text::jinja
