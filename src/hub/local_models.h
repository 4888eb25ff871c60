// The models that are on this machine: what Kapitsa downloaded, and what the caches of Hugging
// Face, LM Studio and Ollama hold. Finds, names and removes; never downloads. Only what Kapitsa
// itself downloaded is ever changed.
#pragma once

#include "base/result.h"
#include "hub/catalog.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::hub {

// Folders to look in, an empty path is not looked in; and the names that models may have.
struct LocalFolders {
  std::filesystem::path data = {};          // <data>/models holds Kapitsa's own
  std::filesystem::path hugging_face = {};  // the "hub" folder of its cache
  std::vector<std::filesystem::path> lm_studio = {};
  std::filesystem::path ollama = {};  // its "models" folder
  Catalog catalog = builtin_catalog();
};

// The usual places below a home folder, where a variable does not name another.
struct LocalVariables {
  std::string home = {};           // HOME
  std::string hf_home = {};        // HF_HOME
  std::string hf_hub_cache = {};   // HF_HUB_CACHE
  std::string ollama_models = {};  // OLLAMA_MODELS
};
LocalFolders local_folders(const std::filesystem::path& data, const LocalVariables& variables);

enum class Origin { kapitsa, hugging_face, lm_studio, ollama };
const char* to_string(Origin origin);

struct LocalModel {
  std::string name = {};        // names it on the command line: "smollm2", "hf:OWNER/REPO:FILE"
  std::string repository = {};  // OWNER/REPO of models from the hub, also of LM Studio; else empty
  std::string type = {};        // "GGUF Q4_K_M", "safetensors"
  Origin origin = Origin::kapitsa;
  std::filesystem::path path = {};  // what to open: a file (of a split one the first) or a folder
  int64_t bytes = 0;
};

// Sorted by origin, then name. A download that is not complete is left out. A file of the catalog
// that was put in place by hand is checked once, by SHA-256, and adopted.
std::vector<LocalModel> find_local_models(const LocalFolders& folders);

// The file or folder of a model given by alias, by path, as hf:OWNER/REPO[:FILE or type], as
// ollama:NAME[:TAG], or by a file name that only one model here has. An error says what to do.
Result<std::filesystem::path> resolve_model(const std::string& name, const LocalFolders& folders);

// The file of a catalog entry when it is downloaded.
Result<std::filesystem::path> resolve_entry(const CatalogEntry& entry, const LocalFolders& folders);

// What `rm` would remove: one folder below <data>/models.
struct Removable {
  std::string name = {};
  std::filesystem::path folder = {};
  int64_t bytes = 0;
  bool complete = true;  // false: a download that was stopped
};
Result<Removable> find_removable(const std::string& name, const LocalFolders& folders);
Status remove_model(const Removable& model);

// [{"name": ..., "type": ..., "origin": ..., "path": ..., "bytes": ...}, ...]
std::string to_json(const std::vector<LocalModel>& models);

// Where the model of this name is or will be, and the file that only one process may hold while it
// changes that folder.
std::filesystem::path model_folder(const std::filesystem::path& data, std::string_view folder_name);
std::filesystem::path lock_file(const std::filesystem::path& model_folder);

// hf:OWNER/REPO[:WANTED], or nothing of that form.
struct HfName {
  std::string repository = {};
  std::string wanted = {};
};
Result<HfName> parse_hf_name(std::string_view name);

}  // namespace kapitsa::hub
