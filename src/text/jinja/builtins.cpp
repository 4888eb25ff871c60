// Argument binding and lookup that all builtins share.
#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::text::jinja {

Builtin find_in(const NamedBuiltin* begin, const NamedBuiltin* end, std::string_view name) {
  const auto* found =
      std::find_if(begin, end, [name](const NamedBuiltin& b) { return b.name == name; });
  return found == end ? nullptr : found->function;
}

Result<std::vector<const Value*>> bind(std::string_view function, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       size_t n_required) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (arguments.positional.size() > names.size())
    return Runtime::error(fmt::format("{}() takes at most {} arguments, got {}", function,
                                      names.size(), arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return Runtime::error(fmt::format("{}() takes no argument '{}'", function, name));
    const Value*& place = bound[static_cast<size_t>(found - names.begin())];
    if (place) return Runtime::error(fmt::format("{}() got two values for '{}'", function, name));
    place = &value;
  }
  for (size_t i = 0; i < n_required; ++i)
    if (!bound[i])
      return Runtime::error(
          fmt::format("{}() needs the argument '{}'", function, names.begin()[i]));
  return bound;
}

Result<int64_t> as_integer(std::string_view what, const Value& value) {
  if (value.is_integral()) return value.integral();
  return Runtime::error(fmt::format("{} must be an integer, not '{}'", what, value.type_name()));
}

Result<const Str*> as_string(std::string_view what, const Value& value) {
  if (value.is_string()) return &value.string();
  return Runtime::error(fmt::format("{} must be a string, not '{}'", what, value.type_name()));
}

}  // namespace kapitsa::text::jinja
