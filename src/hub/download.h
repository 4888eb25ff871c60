// Downloads files to disk: resume, hash while writing, room check, verification, atomic rename.
// Until a file is complete and verified it is <name>.part, with <name>.part.json saying of what;
// under its own name it is whole. What the files are for is not known here. A caller that may not
// be alone holds a lock on the folder (base/output_file.h).
#pragma once

#include "hub/http_client.h"

#include <filesystem>
#include <vector>

namespace kapitsa::hub {

struct Download {
  HttpRequest request = {};  // offset and if_range are filled in here
  std::filesystem::path target = {};
  int64_t bytes = -1;       // -1: not known
  std::string sha256 = {};  // hex; empty: not known
};

enum class Stage { checking, transferring, unpacking };

// Where a set of files is. Calls come from several threads, one at a time.
struct Progress {
  Stage stage = Stage::transferring;
  std::string file = {};     // the one that moved last
  int64_t done_bytes = 0;    // of all files, resumed ones included
  int64_t total_bytes = -1;  // -1: not known
  int64_t fresh_bytes = 0;   // that came over the network in this run
  int files_done = 0;
  int n_files = 0;
};

using ProgressSink = std::function<void(const Progress&)>;
// Bytes free for the disk of a folder; base's free_disk_bytes, or a test's.
using FreeBytes = std::function<Result<int64_t>(const std::filesystem::path&)>;

struct DownloadOptions {
  int parallel = 4;  // files at a time
  ProgressSink progress = {};
  FreeBytes free_bytes = {};
};

struct Downloaded {
  int64_t bytes = 0;
  std::string sha256 = {};
};

// All files, in order of `downloads`. The first failure ends the others; what is complete stays,
// and what is not can be resumed. A target that is there and right is not fetched again.
Result<std::vector<Downloaded>> download_all(const HttpClient& client,
                                             const std::vector<Download>& downloads,
                                             const DownloadOptions& options);

// An error unless `needed` more bytes, and a little for the system, fit on the disk of `folder`.
Status check_room(const std::filesystem::path& folder, int64_t needed, const FreeBytes& free_bytes);

// "98.4 MB": decimal units, as disks and downloads are sold.
std::string shown_bytes(int64_t bytes);

}  // namespace kapitsa::hub
