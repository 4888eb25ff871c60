// The facade's view of text/family.h and of the architectures of this build.
#include "kapitsa/families.h"

#include "model/arch.h"
#include "text/family.h"

#include <algorithm>

namespace kapitsa {

std::vector<FamilyInfo> families() {
  std::vector<FamilyInfo> list;
  for (const text::Family& family : text::families()) {
    list.push_back({.name = family.name,
                    .reasoning = to_string(family.reasoning),
                    .reasoning_open = family.reasoning_open,
                    .reasoning_close = family.reasoning_close,
                    .tool_calls = to_string(family.tool_calls),
                    .stop_tokens = {family.stop_tokens.begin(), family.stop_tokens.end()},
                    .thinking_argument = family.thinking_argument,
                    .effort_argument = family.effort_argument,
                    .efforts = {family.efforts.begin(), family.efforts.end()},
                    .effort_default = family.effort_default,
                    .keep_reasoning_argument = family.keep_reasoning_argument});
  }
  return list;
}

bool runs_architecture(std::string_view name) {
  const auto has = [&](const std::vector<std::string_view>& names) {
    return std::ranges::find(names, name) != names.end();
  };
  return std::ranges::any_of(model::architectures(), [&](const model::ArchDef* arch) {
    return has(arch->gguf_names) || has(arch->model_types);
  });
}

}  // namespace kapitsa
