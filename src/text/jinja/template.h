// A parsed chat template and its rendering in a sandbox: the template sees only the variables it is
// given and the builtins, and may use bounded steps, nesting and output. Immutable after parse()
// and safe to render from several threads at once.
#pragma once

#include "base/result.h"
#include "text/jinja/value.h"

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa::text::jinja {

struct Ast;

struct RenderLimits {
  int64_t max_steps = 20'000'000;       // nodes evaluated, plus list items and 16 bytes made
  size_t max_bytes = size_t{64} << 20;  // of the output and of any one string
  int max_depth = 500;                  // nested statements, expressions and macro calls
};

struct RenderInput {
  std::vector<std::pair<std::string, Value>> variables;
  std::optional<std::tm> now;  // what strftime_now formats; the local time if not given
  RenderLimits limits;
};

class Template {
public:
  // The error names the line.
  static Result<Template> parse(std::string_view source);

  // The input's containers are copied first: a template cannot change them.
  Result<Str> render(const RenderInput& input) const;

private:
  std::shared_ptr<const Ast> ast_;
};

}  // namespace kapitsa::text::jinja
