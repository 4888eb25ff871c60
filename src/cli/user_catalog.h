// The user's own entries of the catalog, from a TOML file (docs/cli.md describes it). Whatever the
// file holds that cannot be used is an error that names the file, the line and the key; nothing is
// passed over.
#pragma once

#include "base/result.h"
#include "hub/catalog.h"

#include <filesystem>
#include <string>
#include <vector>

namespace kapitsa::cli {

// The built-in entries and those of `file`, which may be missing. `home` stands for "~" in paths.
// Marks what this build cannot run.
Result<hub::Catalog> read_catalog(const std::filesystem::path& file, const std::string& home);

}  // namespace kapitsa::cli
