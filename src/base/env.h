// The process environment. Only cli/ calls this: library code takes such values as parameters, so
// that what a program does never depends on a variable that its caller did not see.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace kapitsa {

// nullopt when the variable is not set or empty.
inline std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace kapitsa
