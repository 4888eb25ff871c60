// manifest.json: what a folder below <data folder>/models holds and where it came from. It is
// written last, so that a folder without one, or whose files have other sizes, is not a model.
#pragma once

#include "base/result.h"

#include <filesystem>
#include <string>
#include <vector>

namespace kapitsa::hub {

struct ManifestFile {
  std::string path = {};  // relative to the folder
  int64_t bytes = 0;
  std::string sha256 = {};
};

struct Manifest {
  std::string name = {};    // what a person calls it: "smollm2", "hf:OWNER/REPO:FILE"
  std::string source = {};  // "hf:OWNER/REPO@COMMIT", "pypi:PACKAGE==VERSION", "file"
  std::string open = {};    // the file to open; empty: the folder
  std::vector<ManifestFile> files = {};

  int64_t bytes() const;
};

// An error of code not_found when there is none.
Result<Manifest> read_manifest(const std::filesystem::path& folder);
Status write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
Status remove_manifest(const std::filesystem::path& folder);

// Whether every file is there in its full size. Content is not read.
bool is_complete(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace kapitsa::hub
