#include "weights/open.h"

#include "weights/gguf.h"
#include "weights/hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

namespace kapitsa::weights {
namespace {

namespace fs = std::filesystem;

// The GGUF files of a folder in order, without the second and later shards of a split one.
Result<std::vector<fs::path>> gguf_models(const fs::path& folder) {
  std::vector<fs::path> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    const std::string name = path.filename().string();
    const size_t count = name.rfind("-of-");
    const bool later_shard = count != std::string::npos && count >= 5 &&
                             name.substr(count - 5, 5) != "00001" &&
                             name.size() == count + std::string_view("-of-NNNNN.gguf").size();
    if (path.extension() == ".gguf" && !later_shard) models.push_back(path);
  }
  if (error)
    return Error{ErrorCode::io,
                 fmt::format("{}: cannot list the folder: {}", folder.string(), error.message())};
  std::sort(models.begin(), models.end());
  return models;
}

}  // namespace

Result<Checkpoint> open_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const bool of_folder = path.extension() == ".safetensors" && fs::exists(path, ignored);
    if (!of_folder) return read_gguf(path);
    return read_hf(path.has_parent_path() ? path.parent_path() : ".");
  }
  if (fs::exists(path / "config.json", ignored)) return read_hf(path);
  KAPITSA_ASSIGN(const std::vector<fs::path> models, gguf_models(path));
  if (models.size() == 1) return read_gguf(models.front());
  if (models.empty())
    return Error{ErrorCode::not_found,
                 fmt::format("{}: expected config.json or a .gguf file in this folder, found "
                             "neither",
                             path.string())};
  return Error{ErrorCode::invalid_argument,
               fmt::format("{}: expected one GGUF model in this folder, found {} ({}, {}, ...); "
                           "name the file",
                           path.string(), models.size(), models[0].filename().string(),
                           models[1].filename().string())};
}

}  // namespace kapitsa::weights
