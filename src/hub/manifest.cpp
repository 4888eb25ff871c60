#include "hub/manifest.h"

#include "base/file.h"
#include "base/json.h"
#include "hub/json_read.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxBytes = int64_t{16} << 20;

fs::path file_in(const fs::path& folder) {
  return folder / "manifest.json";
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const ManifestFile& file : files)
    sum += file.bytes;
  return sum;
}

Result<Manifest> read_manifest(const fs::path& folder) {
  const fs::path path = file_in(folder);
  KAPITSA_ASSIGN(const std::string text, read_text_file(path, kMaxBytes));
  KAPITSA_ASSIGN(const json::value parsed, parse_json(text, path.string()));
  const Error damaged{ErrorCode::corrupt_file,
                      fmt::format("{}: expected a manifest of version {}, found something else; "
                                  "pull the model again",
                                  path.string(), kVersion)};
  const json::array* files = array_of(parsed, "files");
  if (integer_of(parsed, "version") != kVersion || files == nullptr) return damaged;
  Manifest manifest{.name = text_of(parsed, "name"),
                    .source = text_of(parsed, "source"),
                    .open = text_of(parsed, "open")};
  for (const json::value& item : *files) {
    const auto bytes = integer_of(item, "bytes");
    if (!bytes) return damaged;
    manifest.files.push_back({text_of(item, "path"), *bytes, text_of(item, "sha256")});
  }
  if (manifest.name.empty() || manifest.files.empty()) return damaged;
  return manifest;
}

Status write_manifest(const fs::path& folder, const Manifest& manifest) {
  json::array files;
  for (const ManifestFile& file : manifest.files)
    files.push_back(
        json::object{{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const json::object root{{"version", kVersion},
                          {"name", manifest.name},
                          {"source", manifest.source},
                          {"open", manifest.open},
                          {"files", std::move(files)}};
  KAPITSA_TRY(write_file_atomic(file_in(folder), json::serialize(root) + "\n"));
  // Whoever may read the model may read what it is.
  std::error_code ignored;
  fs::permissions(file_in(folder),
                  fs::perms::owner_write | fs::perms::owner_read | fs::perms::group_read |
                      fs::perms::others_read,
                  ignored);
  return {};
}

Status remove_manifest(const fs::path& folder) {
  std::error_code error;
  fs::remove(file_in(folder), error);
  if (!error) return {};
  return Error{ErrorCode::io,
               fmt::format("{}: cannot remove it: {}", file_in(folder).string(), error.message())};
}

bool is_complete(const fs::path& folder, const Manifest& manifest) {
  return std::all_of(manifest.files.begin(), manifest.files.end(), [&](const ManifestFile& file) {
    std::error_code error;
    const auto bytes = fs::file_size(folder / file.path, error);
    return !error && static_cast<int64_t>(bytes) == file.bytes;
  });
}

}  // namespace kapitsa::hub
