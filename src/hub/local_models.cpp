#include "hub/local_models.h"

#include "base/output_file.h"
#include "hub/file_names.h"
#include "hub/manifest.h"
#include "hub/scan.h"
#include "hub/sha256.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHfPrefix = "hf:";

// The name of the model that `wanted` (a file, its stem, or a type) picks among some.
bool picks(const LocalModel& model, std::string_view wanted) {
  const std::string file = model.path.filename().string();
  return file == wanted || gguf_stem(file) == wanted ||
         (!wanted.empty() && quantisation_in(file) == upper_case(wanted));
}

Result<const LocalModel*> only_one(const std::vector<const LocalModel*>& found,
                                   const std::string& name, const Error& none) {
  if (found.empty()) return none;
  if (found.size() == 1) return found.front();
  std::string list;
  for (const LocalModel* model : found)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", model->name);
  return Error{ErrorCode::invalid_argument,
               fmt::format("model '{}': expected the name of one model, found {}: {}", name,
                           found.size(), list)};
}

// Those of a repository, once each though they be in several caches.
std::vector<const LocalModel*> of_repository(const HfName& wanted,
                                             const std::vector<LocalModel>& models) {
  std::vector<const LocalModel*> found;
  for (const LocalModel& model : models) {
    if (model.repository != wanted.repository) continue;
    if (!wanted.wanted.empty() && !picks(model, wanted.wanted)) continue;
    const bool seen = std::any_of(found.begin(), found.end(), [&](const LocalModel* other) {
      return other->type == model.type && gguf_stem(other->path.filename().string()) ==
                                              gguf_stem(model.path.filename().string());
    });
    if (!seen) found.push_back(&model);
  }
  return found;
}

Error unknown(const std::string& name, const Catalog& catalog) {
  const bool like_repository = std::count(name.begin(), name.end(), '/') == 1 &&
                               !name.starts_with('/') && !name.starts_with('.') &&
                               !name.ends_with(".gguf");
  return {ErrorCode::not_found,
          fmt::format(
              "model '{}': no such file, and no model of that name here (the catalog has {}; "
              "'kapitsa list' shows what is here){}",
              name, catalog.aliases(),
              like_repository ? fmt::format("; 'kapitsa pull hf:{}' looks for it on the hub", name)
                              : "")};
}

// The manifest of a catalog file that lies in its place without one, after a check by SHA-256.
Status adopt(const CatalogEntry& entry, const CatalogFile& file, const fs::path& folder) {
  Sha256 hash;
  KAPITSA_TRY(hash_file(folder / file.file, hash));
  const std::string found = hash.hex();
  if (found != file.sha256)
    return Error{
        ErrorCode::corrupt_file,
        fmt::format("{}: expected SHA-256 {}, found {}; 'kapitsa pull {}' downloads it again",
                    (folder / file.file).string(), file.sha256, found, entry.alias)};
  const Manifest manifest{
      .name = std::string(entry.alias),
      .source = "file",
      .open = std::string(file.file),
      .files = {{std::string(file.file), file.bytes, std::string(file.sha256)}}};
  // On a disk that cannot be written the check is made again next time.
  const Status written = write_manifest(folder, manifest);
  static_cast<void>(written);
  return {};
}

}  // namespace

LocalFolders local_folders(const fs::path& data, const LocalVariables& variables) {
  LocalFolders folders{.data = data};
  const fs::path home = variables.home;
  if (!variables.hf_hub_cache.empty())
    folders.hugging_face = variables.hf_hub_cache;
  else if (!variables.hf_home.empty())
    folders.hugging_face = fs::path(variables.hf_home) / "hub";
  else if (!home.empty())
    folders.hugging_face = home / ".cache/huggingface/hub";
  if (!home.empty())
    folders.lm_studio = {home / ".lmstudio/models", home / ".cache/lm-studio/models"};
  if (!variables.ollama_models.empty())
    folders.ollama = variables.ollama_models;
  else if (!home.empty())
    folders.ollama = home / ".ollama/models";
  return folders;
}

const char* to_string(Origin origin) {
  switch (origin) {
  case Origin::kapitsa: return "kapitsa";
  case Origin::hugging_face: return "huggingface";
  case Origin::lm_studio: return "lmstudio";
  case Origin::ollama: return "ollama";
  }
  return "unknown";
}

fs::path model_folder(const fs::path& data, std::string_view folder_name) {
  return data / "models" / folder_name;
}

fs::path lock_file(const fs::path& model_folder) {
  return model_folder.parent_path() / fmt::format(".{}.lock", model_folder.filename().string());
}

Result<HfName> parse_hf_name(std::string_view name) {
  if (name.starts_with(kHfPrefix)) {
    std::string_view rest = name.substr(kHfPrefix.size());
    const size_t colon = rest.find(':');
    HfName parsed{.repository = std::string(rest.substr(0, colon))};
    if (colon != rest.npos) parsed.wanted = rest.substr(colon + 1);
    const size_t slash = parsed.repository.find('/');
    if (slash != std::string::npos && slash > 0 && slash + 1 < parsed.repository.size())
      return parsed;
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("'{}': expected a name that 'kapitsa list --all' shows, or "
                           "hf:OWNER/REPO[:FILE]",
                           name)};
}

std::vector<LocalModel> find_local_models(const LocalFolders& folders) {
  std::vector<LocalModel> models;
  for (const CatalogEntry& entry : folders.catalog.entries) {
    // Writes the manifest that scan_kapitsa looks for.
    static_cast<void>(resolve_entry(entry, folders).ok());
  }
  scan_kapitsa(folders.data / "models", models);
  scan_hugging_face(folders.hugging_face, models);
  for (const fs::path& folder : folders.lm_studio)
    scan_lm_studio(folder, models);
  scan_ollama(folders.ollama, models);
  std::sort(models.begin(), models.end(), [](const LocalModel& a, const LocalModel& b) {
    return a.origin != b.origin ? a.origin < b.origin : a.name < b.name;
  });
  return models;
}

Result<fs::path> resolve_entry(const CatalogEntry& entry, const LocalFolders& folders) {
  std::error_code error;
  if (!entry.path.empty()) {
    if (fs::exists(entry.path, error)) return entry.path;
    return Error{ErrorCode::not_found,
                 fmt::format("model '{}': {}: not there, though your catalog names it", entry.alias,
                             entry.path.string())};
  }
  const fs::path folder = model_folder(folders.data, entry.alias);
  if (const auto manifest = read_manifest(folder); manifest && is_complete(folder, *manifest))
    return manifest->open.empty() ? folder : folder / manifest->open;
  for (const CatalogFile& file : entry.files) {
    if (file.sha256.empty()) continue;
    const auto bytes = fs::file_size(folder / file.file, error);
    if (error || static_cast<int64_t>(bytes) != file.bytes) continue;
    KAPITSA_TRY(adopt(entry, file, folder));
    return folder / file.file;
  }
  return Error{ErrorCode::not_found,
               fmt::format("model '{}' ({}) is not downloaded; 'kapitsa pull {}' downloads it",
                           entry.alias, entry.full_name, entry.alias)};
}

Result<fs::path> resolve_model(const std::string& name, const LocalFolders& folders) {
  if (const CatalogEntry* entry = folders.catalog.find(name)) return resolve_entry(*entry, folders);
  std::error_code ignored;
  if (fs::exists(name, ignored)) return fs::path(name);
  const std::vector<LocalModel> models = find_local_models(folders);
  const bool is_ollama = name.starts_with("ollama:");
  // A tag follows the second colon; "latest" is Ollama's own default.
  const std::string tagged =
      is_ollama && std::count(name.begin(), name.end(), ':') == 1 ? name + ":latest" : name;
  for (const LocalModel& model : models) {
    if (model.name == tagged) return model.path;
  }
  if (name.starts_with(kHfPrefix)) {
    KAPITSA_ASSIGN(const HfName wanted, parse_hf_name(name));
    KAPITSA_ASSIGN(
        const LocalModel* model,
        only_one(of_repository(wanted, models), name,
                 {ErrorCode::not_found,
                  fmt::format("model '{}' is not downloaded; 'kapitsa pull {}' downloads "
                              "it",
                              name, name)}));
    return model->path;
  }
  if (is_ollama)
    return Error{
        ErrorCode::not_found,
        fmt::format("model '{}': Ollama has no such model on this machine; 'ollama pull {}' "
                    "downloads it",
                    name, name.substr(name.find(':') + 1))};
  std::vector<const LocalModel*> found;
  for (const LocalModel& model : models) {
    const std::string file = model.path.filename().string();
    if (file == name || gguf_stem(file) == name) found.push_back(&model);
  }
  KAPITSA_ASSIGN(const LocalModel* model, only_one(found, name, unknown(name, folders.catalog)));
  return model->path;
}

Result<Removable> find_removable(const std::string& name, const LocalFolders& folders) {
  const fs::path models = folders.data / "models";
  std::vector<LocalModel> own;
  for (LocalModel& model : find_local_models(folders)) {
    if (model.origin == Origin::kapitsa)
      own.push_back(std::move(model));
    else if (model.name == name)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("model '{}' was not downloaded by kapitsa, so it stays: {}", name,
                               model.path.string())};
  }
  const auto hf = parse_hf_name(name);
  std::vector<const LocalModel*> found;
  if (hf) found = of_repository(*hf, own);
  for (const LocalModel& model : own) {
    if (model.name == name) found = {&model};
  }
  if (!found.empty()) {
    KAPITSA_ASSIGN(const LocalModel* model, only_one(found, name, {}));
    const fs::path inside = model->path.lexically_relative(models);
    return Removable{model->name, models / *inside.begin(), model->bytes, true};
  }
  // A stopped download has no name but that of its folder.
  const std::string folder_name = hf ? hf_folder_name(hf->repository, hf->wanted) : name;
  const fs::path folder = models / folder_name;
  std::error_code ignored;
  const bool is_name = !folder_name.empty() && folder_name.front() != '.' &&
                       folder_name.find('/') == std::string::npos;
  if (is_name && fs::is_directory(fs::symlink_status(folder, ignored)))
    return Removable{name, folder, folder_bytes(folder), false};
  return Error{ErrorCode::not_found,
               fmt::format("model '{}' is not downloaded; 'kapitsa list' shows what is", name)};
}

Status remove_model(const Removable& model) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(model.folder, error);
  if (!fs::is_directory(status))
    return Error{ErrorCode::io,
                 fmt::format("{}: expected a folder, found a link or a file; it stays",
                             model.folder.string())};
  const auto lock = FileLock::acquire(lock_file(model.folder));
  if (!lock && lock.error().code == ErrorCode::unsupported)
    return Error{ErrorCode::unsupported,
                 fmt::format("model '{}' is being downloaded by another kapitsa", model.name)};
  if (!lock) return lock.error();
  // First the manifest: what is left of an interrupted removal does not count as a model.
  KAPITSA_TRY(remove_manifest(model.folder));
  fs::remove_all(model.folder, error);  // removes links, never what they lead to
  if (error)
    return Error{ErrorCode::io, fmt::format("{}: cannot remove all of it: {}",
                                            model.folder.string(), error.message())};
  fs::remove(lock_file(model.folder), error);
  return {};
}

std::string to_json(const std::vector<LocalModel>& models) {
  boost::json::array list;
  for (const LocalModel& model : models)
    list.push_back(boost::json::object{{"name", model.name},
                                       {"type", model.type},
                                       {"origin", to_string(model.origin)},
                                       {"path", model.path.string()},
                                       {"bytes", model.bytes}});
  return boost::json::serialize(list);
}

}  // namespace kapitsa::hub
