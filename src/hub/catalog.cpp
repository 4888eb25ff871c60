#include "hub/catalog.h"

#include <fmt/format.h>

#include <system_error>

namespace kapitsa::hub {
namespace {

constexpr CatalogEntry kCatalog[] = {
    {"smollm2", "SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf",
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432},
    {"35b", "Qwen3.6-35B-A3B", "", "", 0},
    {"27b", "Qwen3.8-27B", "", "", 0},
    {"flash-next", "Qwen3.8-Flash-Next", "", "", 0},
    {"bolt", "NVIDIA-Nemotron-3.5-Lightning-30B-A3B", "", "", 0},
    {"flint", "Muse-Glimmer-30B", "", "", 0},
    {"clover", "block-diffusion MoE", "", "", 0},
};

std::string aliases() {
  std::string list;
  for (const CatalogEntry& entry : kCatalog) {
    if (!list.empty()) list += ", ";
    list += entry.alias;
  }
  return list;
}

}  // namespace

std::span<const CatalogEntry> catalog() {
  return kCatalog;
}

const CatalogEntry* find_in_catalog(std::string_view alias) {
  for (const CatalogEntry& entry : kCatalog) {
    if (entry.alias == alias) return &entry;
  }
  return nullptr;
}

Result<std::filesystem::path> resolve_model(const std::string& name,
                                            const std::filesystem::path& data_folder) {
  std::error_code ignored;
  const CatalogEntry* entry = find_in_catalog(name);
  if (entry == nullptr) {
    std::filesystem::path path(name);
    if (std::filesystem::exists(path, ignored)) return path;
    return Error{ErrorCode::not_found,
                 fmt::format("model '{}': no such file, and not a name of the catalog ({})", name,
                             aliases())};
  }
  if (entry->file.empty()) {
    return Error{ErrorCode::unsupported,
                 fmt::format("model '{}' ({}): this version cannot run it yet; 'smollm2' and llama "
                             "models as GGUF files work",
                             name, entry->full_name)};
  }
  std::filesystem::path path = data_folder / "models" / entry->alias / entry->file;
  if (std::filesystem::exists(path, ignored)) return path;
  return Error{ErrorCode::not_found,
               fmt::format("model '{}' is not downloaded (expected {}); scripts/fetch-model {} "
                           "downloads it",
                           name, path.string(), name)};
}

}  // namespace kapitsa::hub
