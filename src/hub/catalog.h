// The models that Kapitsa knows by a short name, and where a named model lies on this machine.
// Downloading is not done here; nothing is read but folder entries.
#pragma once

#include "base/result.h"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kapitsa::hub {

struct CatalogEntry {
  std::string_view alias;      // "smollm2"
  std::string_view full_name;  // "SmolLM2-135M-Instruct"
  std::string_view file;       // below <data folder>/models/<alias>/; empty: not runnable yet
  std::string_view sha256;     // of the file, hex
  int64_t bytes = 0;
};

std::span<const CatalogEntry> catalog();
const CatalogEntry* find_in_catalog(std::string_view alias);

// The file of a model given by alias or by path. An alias that is not downloaded, or that this
// version cannot run, is an error that says what to do.
Result<std::filesystem::path> resolve_model(const std::string& name,
                                            const std::filesystem::path& data_folder);

}  // namespace kapitsa::hub
