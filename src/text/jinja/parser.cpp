// Recursive descent over the token list, with the precedence of Jinja 3.1: filters and tests bind
// tighter than operators, ~ tighter than + and looser than *. Bounds nesting, so that neither
// parsing nor rendering can run out of stack.
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace kapitsa::text::jinja {

namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxSourceBytes = size_t{4} << 20;

using Names = std::initializer_list<std::string_view>;

class Parser {
public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Ast> run() {
    KAPITSA_TRY(parse_body({}, ast_.body));
    return std::move(ast_);
  }

private:
  using ExprResult = Result<const Expr*>;

  // ---- tokens ----
  const Token& current() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  void next() {
    if (pos_ + 1 < tokens_.size()) ++pos_;
  }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_op(std::string_view op) const { return is(TokenKind::op) && current().text == op; }
  bool is_name(std::string_view name) const {
    return is(TokenKind::name) && current().text == name;
  }
  bool skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    next();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
  }
  Error fail(std::string_view message) const { return template_error(current().line, message); }
  std::string found() const {
    switch (current().kind) {
    case TokenKind::eof: return "end of template";
    case TokenKind::block_end:
    case TokenKind::variable_end: return "end of tag";
    case TokenKind::data: return "template text";
    default: return fmt::format("'{}'", current().text);
    }
  }
  Status expect_op(std::string_view op) {
    if (skip_op(op)) return {};
    return fail(fmt::format("expected '{}', got {}", op, found()));
  }
  Status expect_name(std::string_view name) {
    if (skip_name(name)) return {};
    return fail(fmt::format("expected '{}', got {}", name, found()));
  }
  Status expect(TokenKind kind) {
    if (!is(kind)) return fail(fmt::format("expected end of tag, got {}", found()));
    next();
    return {};
  }
  Result<std::string> identifier() {
    if (!is(TokenKind::name)) return fail(fmt::format("expected a name, got {}", found()));
    std::string name = current().text;
    next();
    return name;
  }

  // ---- nodes ----
  Expr& node(Expr::Kind kind, int line, std::vector<const Expr*> args = {}) {
    Expr& expr = ast_.exprs.emplace_back();
    expr.kind = kind;
    expr.line = line;
    expr.args = std::move(args);
    for (const Expr* arg : expr.args)
      if (arg) expr.depth = std::max(expr.depth, arg->depth + 1);
    return expr;
  }
  ExprResult finish(const Expr& expr) const {
    // Operators of one level make a tree that is as deep as the chain is long.
    if (expr.depth > 2 * kMaxDepth)
      return template_error(expr.line, "an expression is too long or too deeply nested");
    return &expr;
  }
  Stmt& stmt(Stmt::Kind kind, int line) {
    Stmt& s = ast_.stmts.emplace_back();
    s.kind = kind;
    s.line = line;
    return s;
  }

  // Counts the nesting of the parser's own calls.
  struct Nesting {
    explicit Nesting(int& d) : depth(d) { ++depth; }
    ~Nesting() { --depth; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int& depth;
  };

  // ---- expressions ----
  ExprResult parse_expression(bool with_condition = true) {
    const Nesting nesting(depth_);
    if (depth_ > kMaxDepth) return fail("an expression is too deeply nested");
    return with_condition ? parse_condition() : parse_or();
  }

  ExprResult parse_condition() {
    const int line = current().line;
    KAPITSA_ASSIGN(const Expr* value, parse_or());
    while (skip_name("if")) {
      KAPITSA_ASSIGN(const Expr* condition, parse_or());
      const Expr* otherwise = nullptr;
      if (skip_name("else")) {
        KAPITSA_ASSIGN(otherwise, parse_expression());
      }
      KAPITSA_ASSIGN(value,
                     finish(node(Expr::Kind::condition, line, {value, condition, otherwise})));
    }
    return value;
  }

  ExprResult parse_or() {
    const int line = current().line;
    KAPITSA_ASSIGN(const Expr* left, parse_and());
    while (skip_name("or")) {
      KAPITSA_ASSIGN(const Expr* right, parse_and());
      KAPITSA_ASSIGN(left, finish(node(Expr::Kind::logical_or, line, {left, right})));
    }
    return left;
  }

  ExprResult parse_and() {
    const int line = current().line;
    KAPITSA_ASSIGN(const Expr* left, parse_not());
    while (skip_name("and")) {
      KAPITSA_ASSIGN(const Expr* right, parse_not());
      KAPITSA_ASSIGN(left, finish(node(Expr::Kind::logical_and, line, {left, right})));
    }
    return left;
  }

  ExprResult parse_not() {
    const int line = current().line;
    int n_nots = 0;
    while (skip_name("not"))
      ++n_nots;
    KAPITSA_ASSIGN(const Expr* value, parse_compare());
    for (; n_nots > 0; --n_nots) {
      KAPITSA_ASSIGN(value, finish(node(Expr::Kind::logical_not, line, {value})));
    }
    return value;
  }

  std::string compare_operator() {
    constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (const std::string_view op : kOperators)
      if (skip_op(op)) return std::string(op);
    if (skip_name("in")) return "in";
    if (is_name("not") && look().kind == TokenKind::name && look().text == "in") {
      next();
      next();
      return "not in";
    }
    return {};
  }

  ExprResult parse_compare() {
    const int line = current().line;
    KAPITSA_ASSIGN(const Expr* first, parse_sum());
    std::vector<const Expr*> args{first};
    std::vector<std::string> ops;
    for (std::string op = compare_operator(); !op.empty(); op = compare_operator()) {
      ops.push_back(std::move(op));
      KAPITSA_ASSIGN(const Expr* right, parse_sum());
      args.push_back(right);
    }
    if (ops.empty()) return first;
    Expr& expr = node(Expr::Kind::compare, line, std::move(args));
    expr.ops = std::move(ops);
    return finish(expr);
  }

  template <typename Operand>
  ExprResult parse_binary(Names operators, const Operand& operand) {
    const int line = current().line;
    KAPITSA_ASSIGN(const Expr* left, operand());
    while (is(TokenKind::op) &&
           std::find(operators.begin(), operators.end(), current().text) != operators.end()) {
      const std::string op = current().text;
      next();
      KAPITSA_ASSIGN(const Expr* right, operand());
      Expr& expr = node(Expr::Kind::binary, line, {left, right});
      expr.name = op;
      KAPITSA_ASSIGN(left, finish(expr));
    }
    return left;
  }

  ExprResult parse_sum() {
    return parse_binary({"+", "-"}, [this] { return parse_concat(); });
  }

  ExprResult parse_concat() {
    const int line = current().line;
    KAPITSA_ASSIGN(const Expr* first, parse_product());
    std::vector<const Expr*> args{first};
    while (skip_op("~")) {
      KAPITSA_ASSIGN(const Expr* right, parse_product());
      args.push_back(right);
    }
    return args.size() == 1 ? ExprResult(first)
                            : finish(node(Expr::Kind::concat, line, std::move(args)));
  }

  ExprResult parse_product() {
    return parse_binary({"*", "/", "//", "%"}, [this] {
      return parse_binary({"**"}, [this] { return parse_unary(true); });
    });
  }

  ExprResult parse_unary(bool with_filter) {
    const Nesting nesting(depth_);
    if (depth_ > kMaxDepth) return fail("an expression is too deeply nested");
    const int line = current().line;
    const Expr* value = nullptr;
    if (is_op("-") || is_op("+")) {
      const auto kind = is_op("-") ? Expr::Kind::negate : Expr::Kind::plus;
      next();
      KAPITSA_ASSIGN(value, parse_unary(false));
      value = &node(kind, line, {value});
    } else {
      KAPITSA_ASSIGN(value, parse_primary());
    }
    KAPITSA_ASSIGN(value, parse_postfix(value));
    return with_filter ? parse_filters_and_tests(value) : ExprResult(value);
  }

  const Expr* constant(Value value, int line) {
    Expr& expr = node(Expr::Kind::constant, line);
    expr.constant = std::move(value);
    return &expr;
  }

  ExprResult parse_primary() {
    const Token& token = current();
    const int line = token.line;
    switch (token.kind) {
    case TokenKind::name: {
      next();
      if (token.text == "true" || token.text == "True") return constant(true, line);
      if (token.text == "false" || token.text == "False") return constant(false, line);
      if (token.text == "none" || token.text == "None") return constant(None{}, line);
      Expr& expr = node(Expr::Kind::name, line);
      expr.name = token.text;
      return &expr;
    }
    case TokenKind::string: {
      std::string text;
      for (; is(TokenKind::string); next())
        text += current().text;
      return constant(Str(std::move(text)), line);
    }
    case TokenKind::integer: next(); return constant(token.integer, line);
    case TokenKind::real: next(); return constant(token.real, line);
    case TokenKind::op: break;
    default: return fail(fmt::format("expected an expression, got {}", found()));
    }
    if (skip_op("(")) {
      KAPITSA_ASSIGN(const Expr* value, parse_tuple(true));
      KAPITSA_TRY(expect_op(")"));
      return value;
    }
    if (skip_op("[")) return parse_list(line);
    if (skip_op("{")) return parse_dict(line);
    return fail(fmt::format("expected an expression, got {}", found()));
  }

  // One expression, or a tuple when commas follow. `stop` is a name that ends it.
  ExprResult parse_tuple(bool in_parentheses = false, bool with_condition = true,
                         std::string_view stop = {}) {
    const int line = current().line;
    std::vector<const Expr*> items;
    bool is_tuple = false;
    while (!is(TokenKind::block_end) && !is(TokenKind::variable_end) && !is_op(")") &&
           (stop.empty() || !is_name(stop))) {
      KAPITSA_ASSIGN(const Expr* item, parse_expression(with_condition));
      items.push_back(item);
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && items.size() == 1) return items[0];
    if (!is_tuple && !in_parentheses)
      return fail(fmt::format("expected an expression, got {}", found()));
    return finish(node(Expr::Kind::tuple, line, std::move(items)));
  }

  ExprResult parse_list(int line) {
    std::vector<const Expr*> items;
    while (!is_op("]")) {
      KAPITSA_ASSIGN(const Expr* item, parse_expression());
      items.push_back(item);
      if (!is_op("]")) KAPITSA_TRY(expect_op(","));
    }
    next();
    return finish(node(Expr::Kind::list, line, std::move(items)));
  }

  ExprResult parse_dict(int line) {
    std::vector<const Expr*> items;
    while (!is_op("}")) {
      KAPITSA_ASSIGN(const Expr* key, parse_expression());
      KAPITSA_TRY(expect_op(":"));
      KAPITSA_ASSIGN(const Expr* value, parse_expression());
      items.insert(items.end(), {key, value});
      if (!is_op("}")) KAPITSA_TRY(expect_op(","));
    }
    next();
    return finish(node(Expr::Kind::dict, line, std::move(items)));
  }

  ExprResult parse_postfix(const Expr* value) {
    while (is(TokenKind::op)) {
      const int line = current().line;
      if (skip_op(".")) {
        KAPITSA_ASSIGN(value, parse_attribute(value, line));
      } else if (skip_op("[")) {
        KAPITSA_ASSIGN(value, parse_subscript(value, line));
      } else if (is_op("(")) {
        KAPITSA_ASSIGN(value, parse_call(value, line));
      } else {
        break;
      }
    }
    return value;
  }

  ExprResult parse_attribute(const Expr* object, int line) {
    if (is(TokenKind::integer)) {
      const Expr* index = constant(current().integer, line);
      next();
      return finish(node(Expr::Kind::item, line, {object, index}));
    }
    KAPITSA_ASSIGN(std::string name, identifier());
    Expr& expr = node(Expr::Kind::attribute, line, {object});
    expr.name = std::move(name);
    return finish(expr);
  }

  // One part of [a:b:c]; null where it is left out.
  ExprResult parse_bound() {
    if (is_op(":") || is_op("]")) return nullptr;
    return parse_expression();
  }

  ExprResult parse_subscript(const Expr* object, int line) {
    KAPITSA_ASSIGN(const Expr* first, parse_bound());
    if (!is_op(":")) {
      if (!first) return fail("expected an expression, got ']'");
      KAPITSA_TRY(expect_op("]"));
      return finish(node(Expr::Kind::item, line, {object, first}));
    }
    next();
    KAPITSA_ASSIGN(const Expr* second, parse_bound());
    const Expr* third = nullptr;
    if (skip_op(":")) {
      KAPITSA_ASSIGN(third, parse_bound());
    }
    KAPITSA_TRY(expect_op("]"));
    return finish(node(Expr::Kind::slice, line, {object, first, second, third}));
  }

  // Appends "(a, b, key=c)" to the node, if it is there.
  Status parse_arguments(Expr& expr) {
    KAPITSA_TRY(expect_op("("));
    while (!is_op(")")) {
      if (is_op("*") || is_op("**")) return fail("* and ** arguments are not supported");
      const bool is_keyword =
          is(TokenKind::name) && look().kind == TokenKind::op && look().text == "=";
      std::string key;
      if (is_keyword) {
        key = current().text;
        next();
        next();
      } else if (!expr.kwargs.empty()) {
        return fail("positional argument after a keyword argument");
      }
      KAPITSA_ASSIGN(const Expr* value, parse_expression());
      expr.depth = std::max(expr.depth, value->depth + 1);
      if (is_keyword)
        expr.kwargs.emplace_back(std::move(key), value);
      else
        expr.args.push_back(value);
      if (!is_op(")")) KAPITSA_TRY(expect_op(","));
    }
    next();
    return {};
  }

  ExprResult parse_call(const Expr* callee, int line) {
    Expr& expr = node(Expr::Kind::call, line, {callee});
    KAPITSA_TRY(parse_arguments(expr));
    return finish(expr);
  }

  ExprResult parse_filters_and_tests(const Expr* value) {
    while (true) {
      if (is_op("|")) {
        next();
        KAPITSA_ASSIGN(value, parse_filter(value));
      } else if (is_name("is")) {
        KAPITSA_ASSIGN(value, parse_test(value));
      } else if (is_op("(")) {
        KAPITSA_ASSIGN(value, parse_call(value, current().line));
      } else {
        return value;
      }
    }
  }

  ExprResult parse_filter(const Expr* value) {
    Expr& expr = node(Expr::Kind::filter, current().line, {value});
    KAPITSA_ASSIGN(expr.name, identifier());
    if (is_op("(")) KAPITSA_TRY(parse_arguments(expr));
    return finish(expr);
  }

  ExprResult parse_test(const Expr* value) {
    const int line = current().line;
    next();
    const bool negated = skip_name("not");
    Expr& expr = node(Expr::Kind::test, line, {value});
    KAPITSA_ASSIGN(expr.name, identifier());
    const bool is_operand =
        is(TokenKind::string) || is(TokenKind::integer) || is(TokenKind::real) || is_op("[") ||
        is_op("{") ||
        (is(TokenKind::name) && !is_name("else") && !is_name("or") && !is_name("and"));
    if (is_op("(")) {
      KAPITSA_TRY(parse_arguments(expr));
    } else if (is_operand && !is_name("if") && !is_name("not") && !is_name("in")) {
      if (is_name("is")) return fail("tests cannot be chained with 'is'");
      KAPITSA_ASSIGN(const Expr* operand, parse_primary());
      KAPITSA_ASSIGN(operand, parse_postfix(operand));
      expr.args.push_back(operand);
      expr.depth = std::max(expr.depth, operand->depth + 1);
    }
    KAPITSA_ASSIGN(const Expr* test, finish(expr));
    return negated ? finish(node(Expr::Kind::logical_not, line, {test})) : ExprResult(test);
  }

  // ---- statements ----
  // Parses until a tag whose name is one of `ends`; that name is current afterwards.
  Status parse_body(Names ends, std::vector<const Stmt*>& body) {
    const Nesting nesting(depth_);
    if (depth_ > kMaxDepth) return fail("statements are too deeply nested");
    while (true) {
      const Token& token = current();
      if (token.kind == TokenKind::eof) {
        if (ends.size() == 0) return {};
        return fail(fmt::format("unexpected end of template, expected '{}'", *ends.begin()));
      }
      if (token.kind == TokenKind::data) {
        Stmt& s = stmt(Stmt::Kind::data, token.line);
        s.text = Str(token.text);
        body.push_back(&s);
        next();
      } else if (token.kind == TokenKind::variable_begin) {
        next();
        Stmt& s = stmt(Stmt::Kind::output, token.line);
        KAPITSA_ASSIGN(s.expr, parse_tuple());
        KAPITSA_TRY(expect(TokenKind::variable_end));
        body.push_back(&s);
      } else {
        next();
        if (!is(TokenKind::name)) return fail(fmt::format("expected a tag name, got {}", found()));
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return {};
        KAPITSA_ASSIGN(const Stmt* s, parse_statement());
        body.push_back(s);
      }
    }
  }

  // "... %} body {% end %}": from the end of the opening tag to the end of the closing one.
  Status parse_block(std::string_view end, std::vector<const Stmt*>& body) {
    KAPITSA_TRY(expect(TokenKind::block_end));
    KAPITSA_TRY(parse_body({end}, body));
    next();
    return expect(TokenKind::block_end);
  }

  Result<const Stmt*> parse_statement() {
    const std::string name = current().text;
    const int line = current().line;
    next();
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "call") return parse_call_block(line);
    if (name == "with") return parse_with(line);
    if (name == "filter") {
      Stmt& s = stmt(Stmt::Kind::filter, line);
      KAPITSA_ASSIGN(s.expr, parse_filter_chain());
      KAPITSA_TRY(parse_block("endfilter", s.body));
      return &s;
    }
    if (name == "generation") {
      Stmt& s = stmt(Stmt::Kind::group, line);
      KAPITSA_TRY(parse_block("endgeneration", s.body));
      return &s;
    }
    if (name == "do") {
      Stmt& s = stmt(Stmt::Kind::evaluate, line);
      KAPITSA_ASSIGN(s.expr, parse_tuple());
      KAPITSA_TRY(expect(TokenKind::block_end));
      return &s;
    }
    if (name == "break" || name == "continue") {
      if (n_loops_ == 0) return template_error(line, fmt::format("'{}' outside of a loop", name));
      KAPITSA_TRY(expect(TokenKind::block_end));
      return &stmt(name == "break" ? Stmt::Kind::break_loop : Stmt::Kind::continue_loop, line);
    }
    return template_error(line, fmt::format("unknown tag '{}'", name));
  }

  Result<const Stmt*> parse_if(int line) {
    Stmt& s = stmt(Stmt::Kind::conditional, line);
    while (true) {
      Stmt::Branch branch{};
      KAPITSA_ASSIGN(branch.condition, parse_tuple(false, false));
      KAPITSA_TRY(expect(TokenKind::block_end));
      KAPITSA_TRY(parse_body({"endif", "elif", "else"}, branch.body));
      s.branches.push_back(std::move(branch));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        KAPITSA_TRY(parse_block("endif", s.else_body));
        return &s;
      }
      next();
      KAPITSA_TRY(expect(TokenKind::block_end));
      return &s;
    }
  }

  // Names, possibly in nested tuples; a namespace attribute where `set` allows it.
  ExprResult parse_target(bool allow_attribute, std::string_view stop = {}) {
    const int line = current().line;
    std::vector<const Expr*> items;
    bool is_tuple = false;
    while (stop.empty() || !is_name(stop)) {
      KAPITSA_ASSIGN(const Expr* item, parse_single_target(allow_attribute));
      items.push_back(item);
      if (!skip_op(",")) break;
      is_tuple = true;
      if (is_op("=") || is_op(")")) break;
    }
    if (items.empty()) return fail(fmt::format("expected a name, got {}", found()));
    return is_tuple ? finish(node(Expr::Kind::tuple, line, std::move(items))) : items[0];
  }

  ExprResult parse_single_target(bool allow_attribute) {
    const Nesting nesting(depth_);
    if (depth_ > kMaxDepth) return fail("an assignment is too deeply nested");
    const int line = current().line;
    if (skip_op("(")) {
      KAPITSA_ASSIGN(const Expr* inner, parse_target(allow_attribute));
      KAPITSA_TRY(expect_op(")"));
      return inner;
    }
    constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), current().text) !=
        std::end(kReserved))
      return fail(fmt::format("cannot assign to '{}'", current().text));
    Expr& name = node(Expr::Kind::name, line);
    KAPITSA_ASSIGN(name.name, identifier());
    if (!allow_attribute || !skip_op(".")) return &name;
    return parse_attribute(&name, line);
  }

  Result<const Stmt*> parse_for(int line) {
    Stmt& s = stmt(Stmt::Kind::loop, line);
    KAPITSA_ASSIGN(s.target, parse_target(false, "in"));
    KAPITSA_TRY(expect_name("in"));
    KAPITSA_ASSIGN(s.expr, parse_tuple(false, false, "recursive"));
    if (skip_name("if")) {
      KAPITSA_ASSIGN(s.condition, parse_expression());
    }
    if (is_name("recursive")) return fail("recursive loops are not supported");
    KAPITSA_TRY(expect(TokenKind::block_end));
    ++n_loops_;
    KAPITSA_TRY(parse_body({"endfor", "else"}, s.body));
    --n_loops_;
    if (skip_name("else")) {
      KAPITSA_TRY(parse_block("endfor", s.else_body));
      return &s;
    }
    next();
    KAPITSA_TRY(expect(TokenKind::block_end));
    return &s;
  }

  // name | name(...) ...: a chain whose innermost operand is null.
  ExprResult parse_filter_chain() {
    const Expr* chain = nullptr;
    do {
      KAPITSA_ASSIGN(chain, parse_filter(chain));
    } while (skip_op("|"));
    return chain;
  }

  Result<const Stmt*> parse_set(int line) {
    Stmt& s = stmt(Stmt::Kind::set, line);
    KAPITSA_ASSIGN(s.target, parse_target(true));
    if (skip_op("=")) {
      KAPITSA_ASSIGN(s.expr, parse_tuple());
      KAPITSA_TRY(expect(TokenKind::block_end));
      return &s;
    }
    s.kind = Stmt::Kind::set_block;
    if (skip_op("|")) {
      KAPITSA_ASSIGN(s.expr, parse_filter_chain());
    }
    KAPITSA_TRY(parse_block("endset", s.body));
    return &s;
  }

  Status parse_params(std::vector<Stmt::Param>& params) {
    KAPITSA_TRY(expect_op("("));
    while (!is_op(")")) {
      Stmt::Param param{{}, nullptr};
      KAPITSA_ASSIGN(param.name, identifier());
      if (skip_op("=")) {
        KAPITSA_ASSIGN(param.value, parse_expression());
      } else if (!params.empty() && params.back().value) {
        return fail("a parameter without default follows one with a default");
      }
      params.push_back(std::move(param));
      if (!is_op(")")) KAPITSA_TRY(expect_op(","));
    }
    next();
    return {};
  }

  Result<const Stmt*> parse_macro(int line) {
    Stmt& s = stmt(Stmt::Kind::macro, line);
    KAPITSA_ASSIGN(s.name, identifier());
    KAPITSA_TRY(parse_params(s.params));
    return function_body(s, "endmacro");
  }

  // A loop outside of a function is not a loop inside of it.
  Result<const Stmt*> function_body(Stmt& s, std::string_view end) {
    const int n_loops = std::exchange(n_loops_, 0);
    KAPITSA_TRY(parse_block(end, s.body));
    n_loops_ = n_loops;
    return &s;
  }

  Result<const Stmt*> parse_call_block(int line) {
    Stmt& s = stmt(Stmt::Kind::call_block, line);
    s.name = "caller";
    if (is_op("(")) KAPITSA_TRY(parse_params(s.params));
    KAPITSA_ASSIGN(s.expr, parse_unary(true));
    if (s.expr->kind != Expr::Kind::call) return fail("expected a call");
    return function_body(s, "endcall");
  }

  // Each assignment is a `set` statement at the head of the body.
  Result<const Stmt*> parse_with(int line) {
    Stmt& s = stmt(Stmt::Kind::with, line);
    while (!is(TokenKind::block_end)) {
      Stmt& assignment = stmt(Stmt::Kind::set, line);
      KAPITSA_ASSIGN(assignment.target, parse_single_target(false));
      KAPITSA_TRY(expect_op("="));
      KAPITSA_ASSIGN(assignment.expr, parse_expression());
      s.body.push_back(&assignment);
      if (!is(TokenKind::block_end)) KAPITSA_TRY(expect_op(","));
    }
    KAPITSA_TRY(parse_block("endwith", s.body));
    return &s;
  }

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  int n_loops_ = 0;
  Ast ast_;
};

}  // namespace

Result<Ast> parse_template(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return Error{ErrorCode::unsupported, fmt::format("template of {} bytes, expected at most {}",
                                                     source.size(), kMaxSourceBytes)};
  KAPITSA_ASSIGN(std::vector<Token> tokens, tokenize_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace kapitsa::text::jinja
