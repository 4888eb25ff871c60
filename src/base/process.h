// Other programs: finding one and running it in the foreground, as a shell does.
#pragma once

#include "base/result.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa {

// The first executable file of this name in the folders of `path` (as in PATH), then in `more`.
std::optional<std::filesystem::path> find_program(const std::string& name, std::string_view path,
                                                  const std::vector<std::filesystem::path>& more);

// Runs it with our standard input and outputs and our environment, where `variables` win. Returns
// its exit code, or 128 + the signal that ended it. Meanwhile Ctrl-C is the program's alone, and
// SIGTERM and SIGHUP go on to it.
Result<int> run_program(const std::filesystem::path& program,
                        const std::vector<std::string>& arguments,
                        const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace kapitsa
