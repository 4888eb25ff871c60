#include "hub/scan.h"

#include "base/file.h"
#include "base/json.h"
#include "hub/file_names.h"
#include "hub/json_read.h"
#include "hub/manifest.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int64_t kMaxManifestBytes = int64_t{4} << 20;

// The entries of a folder by name, links followed; none when it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  if (folder.empty()) return found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found = entries(folder);
  std::erase_if(found, [](const fs::path& path) {
    std::error_code error;
    return !fs::is_directory(path, error) || path.filename().string().starts_with('.');
  });
  return found;
}

// nullopt for a broken link, or what is not a file.
std::optional<int64_t> size_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const auto bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string gguf_type(std::string_view file_name) {
  const std::string type = quantisation_in(file_name);
  return type.empty() ? "GGUF" : fmt::format("GGUF {}", type);
}

struct Group {
  fs::path first;
  int expected = 1;
  int found = 0;
  int64_t bytes = 0;
};

// Files whose shards are all there, grouped by name without shard number.
std::vector<Group> complete_groups(const std::vector<fs::path>& files) {
  std::map<std::string, Group> groups;
  for (const fs::path& path : files) {
    const auto bytes = size_of(path);
    if (!bytes) continue;
    const std::string name = path.filename().string();
    const auto shard = parse_shard(name);
    Group& group = groups[shard ? shard->stem : name];
    if (group.found == 0) group.first = path;  // files come in order of their names
    group.expected = shard ? shard->count : 1;
    group.bytes += *bytes;
    ++group.found;
  }
  std::vector<Group> complete;
  for (auto& [name, group] : groups) {
    if (group.found == group.expected) complete.push_back(std::move(group));
  }
  return complete;
}

// The models of one folder with the content of a repository: GGUF files, or safetensors together.
// `prefix` is "hf:" or "lmstudio:".
void scan_repository(const fs::path& folder, const std::string& repository, Origin origin,
                     std::string_view prefix, std::vector<LocalModel>& models) {
  std::vector<fs::path> ggufs;
  std::vector<fs::path> safetensors;
  std::vector<fs::path> files = entries(folder);
  for (const fs::path& below : folders_in(folder)) {  // some keep each type in a folder of its own
    for (const fs::path& path : entries(below)) {
      if (is_gguf_name(path.filename().string())) ggufs.push_back(path);
    }
  }
  for (const fs::path& path : files) {
    if (is_gguf_name(path.filename().string())) ggufs.push_back(path);
    if (path.extension() == ".safetensors") safetensors.push_back(path);
  }
  for (const Group& group : complete_groups(ggufs)) {
    const std::string file = group.first.filename().string();
    models.push_back({.name = fmt::format("{}{}:{}", prefix, repository, file),
                      .repository = repository,
                      .type = gguf_type(file),
                      .origin = origin,
                      .path = group.first,
                      .bytes = group.bytes});
  }
  if (!size_of(folder / "config.json")) return;
  int64_t bytes = 0;
  for (const Group& group : complete_groups(safetensors))
    bytes += group.bytes;
  if (bytes > 0)
    models.push_back({.name = fmt::format("{}{}", prefix, repository),
                      .repository = repository,
                      .type = "safetensors",
                      .origin = origin,
                      .path = folder,
                      .bytes = bytes});
}

// The snapshot that "main" points to, else the last by name.
fs::path current_snapshot(const fs::path& repository) {
  if (const auto commit = read_text_file(repository / "refs/main", 256)) {
    const fs::path folder =
        repository / "snapshots" / commit->substr(0, commit->find_first_of(" \r\n"));
    std::error_code error;
    if (folder.filename() != "snapshots" && fs::is_directory(folder, error)) return folder;
  }
  const std::vector<fs::path> snapshots = folders_in(repository / "snapshots");
  return snapshots.empty() ? fs::path() : snapshots.back();
}

// The blob with the weights, by Ollama's manifest of one tag.
struct OllamaBlob {
  fs::path path;
  int64_t bytes = 0;
};
std::optional<OllamaBlob> ollama_blob(const fs::path& manifest, const fs::path& folder) {
  constexpr std::string_view kModel = "application/vnd.ollama.image.model";
  const auto text = read_text_file(manifest, kMaxManifestBytes);
  if (!text) return std::nullopt;
  const auto parsed = parse_json(*text, manifest.string());
  const json::array* layers = parsed ? array_of(*parsed, "layers") : nullptr;
  if (layers == nullptr) return std::nullopt;
  for (const json::value& layer : *layers) {
    std::string name = text_of(layer, "digest");
    if (text_of(layer, "mediaType") != kModel || name.empty()) continue;
    std::replace(name.begin(), name.end(), ':', '-');
    if (name.find('/') != std::string::npos) continue;
    const fs::path path = folder / "blobs" / name;
    const auto bytes = size_of(path);
    if (bytes) return OllamaBlob{path, *bytes};
  }
  return std::nullopt;
}

}  // namespace

void scan_kapitsa(const fs::path& folder, std::vector<LocalModel>& models) {
  for (const fs::path& below : folders_in(folder)) {
    const auto manifest = read_manifest(below);
    if (!manifest || !is_complete(below, *manifest)) continue;
    LocalModel model{.name = manifest->name, .bytes = manifest->bytes()};
    const auto hf = parse_hf_name(manifest->name);
    if (hf) model.repository = hf->repository;
    model.type = manifest->open.empty() ? "safetensors" : gguf_type(manifest->open);
    model.path = manifest->open.empty() ? below : below / manifest->open;
    models.push_back(std::move(model));
  }
}

void scan_hugging_face(const fs::path& folder, std::vector<LocalModel>& models) {
  constexpr std::string_view kPrefix = "models--";
  for (const fs::path& below : folders_in(folder)) {
    std::string repository = below.filename().string();
    if (!repository.starts_with(kPrefix)) continue;
    repository.erase(0, kPrefix.size());
    const size_t separator = repository.find("--");
    if (separator != std::string::npos)
      repository =
          fmt::format("{}/{}", repository.substr(0, separator), repository.substr(separator + 2));
    const fs::path snapshot = current_snapshot(below);
    if (!snapshot.empty())
      scan_repository(snapshot, repository, Origin::hugging_face, "hf:", models);
  }
}

void scan_lm_studio(const fs::path& folder, std::vector<LocalModel>& models) {
  for (const fs::path& owner : folders_in(folder)) {
    for (const fs::path& repository : folders_in(owner)) {
      const std::string id =
          fmt::format("{}/{}", owner.filename().string(), repository.filename().string());
      scan_repository(repository, id, Origin::lm_studio, "lmstudio:", models);
    }
  }
}

void scan_ollama(const fs::path& folder, std::vector<LocalModel>& models) {
  if (folder.empty()) return;
  for (const fs::path& host : folders_in(folder / "manifests")) {
    for (const fs::path& owner : folders_in(host)) {
      for (const fs::path& name : folders_in(owner)) {
        for (const fs::path& tag : entries(name)) {
          const auto blob = ollama_blob(tag, folder);
          if (!blob) continue;
          // Models of Ollama's own library go by their bare names.
          std::string full = name.filename().string();
          if (owner.filename() != "library")
            full = fmt::format("{}/{}", owner.filename().string(), full);
          if (host.filename() != "registry.ollama.ai")
            full = fmt::format("{}/{}", host.filename().string(), full);
          models.push_back({.name = fmt::format("ollama:{}:{}", full, tag.filename().string()),
                            .type = "GGUF",
                            .origin = Origin::ollama,
                            .path = blob->path,
                            .bytes = blob->bytes});
        }
      }
    }
  }
}

std::string hf_folder_name(std::string_view repository, std::string_view wanted) {
  const size_t slash = repository.find('/');
  std::string name(repository.substr(0, slash));
  if (slash != std::string_view::npos) name += fmt::format("--{}", repository.substr(slash + 1));
  if (!wanted.empty()) name += fmt::format("--{}", base_name(wanted));
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

int64_t folder_bytes(const fs::path& folder) {
  int64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code failed;
    if (!it->is_symlink(failed) && it->is_regular_file(failed))
      sum += static_cast<int64_t>(it->file_size(failed));
  }
  return sum;
}

}  // namespace kapitsa::hub
