#include "hub/download.h"

#include "base/file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "hub/json_read.h"
#include "hub/sha256.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int64_t kSpareBytes = int64_t{64} << 20;  // left free for everything else on the disk

// What one file tells the set that it belongs to.
struct FileReport {
  Stage stage = Stage::transferring;
  int64_t done = 0;
  int64_t total = -1;
  int64_t fresh = 0;  // since the last report
};
using FileSink = std::function<void(const FileReport&)>;

fs::path with_suffix(const fs::path& path, std::string_view suffix) {
  return fs::path(path.string() + std::string(suffix));
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

// What the bytes of a .part belong to.
struct PartNote {
  std::string url;
  std::string etag;
  std::string sha256;
};

std::optional<PartNote> read_note(const fs::path& path) {
  const auto text = read_text_file(path, 1 << 16);
  if (!text) return std::nullopt;
  const auto parsed = parse_json(*text, path.string());
  if (!parsed) return std::nullopt;
  return PartNote{text_of(*parsed, "url"), text_of(*parsed, "etag"), text_of(*parsed, "sha256")};
}

// One file on its way to disk.
class Transfer {
public:
  Transfer(const HttpClient& client, const Download& wanted, const FreeBytes& free_bytes,
           const FileSink& sink)
      : client_(client), wanted_(wanted), free_bytes_(free_bytes), sink_(sink),
        part_(with_suffix(wanted.target, ".part")), note_(with_suffix(part_, ".json")) {}

  Result<Downloaded> run();

private:
  Status open_part();
  Status restart();
  Status fetch();
  HttpRequest next_request(int last_status);
  Status start(const HttpResponse& response);
  Status body(std::span<const std::byte> bytes);
  Status verify(const std::string& found);
  Status publish();
  void report(Stage stage, int64_t done, int64_t fresh) const {
    sink_({stage, done, total_bytes_, fresh});
  }
  bool complete() const { return total_bytes_ >= 0 && file_->size() == total_bytes_; }

  const HttpClient& client_;
  const Download& wanted_;
  const FreeBytes& free_bytes_;
  const FileSink& sink_;
  const fs::path part_;
  const fs::path note_;
  std::optional<OutputFile> file_;
  Sha256 hash_;
  PartNote known_;            // about the bytes in file_
  int64_t total_bytes_ = -1;  // -1: not known yet
  bool resumed_ = false;      // some bytes are of an earlier run
  bool stale_ = false;        // they turned out to be of another version
};

Status Transfer::restart() {
  hash_ = Sha256();
  resumed_ = false;
  known_ = {};
  return file_->truncate(0);
}

// Takes over an earlier run's bytes only where they can be proved to belong to this file: by its
// SHA-256 at the end, or by the ETag now.
Status Transfer::open_part() {
  KAPITSA_ASSIGN(file_, OutputFile::open(part_));
  total_bytes_ = wanted_.bytes;
  const auto note = read_note(note_);
  const bool same =
      note && note->sha256 == wanted_.sha256 &&
      (!wanted_.sha256.empty() || (note->url == wanted_.request.url && !note->etag.empty()));
  if (file_->size() == 0 || !same || (wanted_.bytes >= 0 && file_->size() > wanted_.bytes))
    return restart();
  known_ = *note;
  resumed_ = true;
  return hash_file(part_, hash_, [&](int64_t done) {
    report(Stage::checking, done, 0);
    return !client_.cancelled();
  });
}

HttpRequest Transfer::next_request(int last_status) {
  constexpr int kRangeRefused = 416;
  HttpRequest request = wanted_.request;
  request.offset = last_status == kRangeRefused ? 0 : file_->size();
  if (known_.url == request.url) request.if_range = known_.etag;
  return request;
}

Status Transfer::start(const HttpResponse& response) {
  const std::string where = shown_url(wanted_.request.url);
  if (response.offset == 0 && file_->size() > 0) {
    // The whole file comes, since it has changed or since this server cannot do parts.
    KAPITSA_TRY(restart());
  } else if (response.offset != file_->size()) {
    return Error{ErrorCode::io,
                 fmt::format("{}: expected the bytes from {} on, found those from {}", where,
                             file_->size(), response.offset)};
  } else if (file_->size() > 0 && wanted_.sha256.empty() && response.etag != known_.etag) {
    stale_ = true;
    return Error{ErrorCode::io, where + ": changed while it was downloaded"};
  }
  if (wanted_.bytes >= 0 && response.total_bytes >= 0 && response.total_bytes != wanted_.bytes)
    return Error{ErrorCode::io, fmt::format("{}: expected a file of {} bytes, found one of {}",
                                            where, wanted_.bytes, response.total_bytes)};
  if (response.total_bytes >= 0) total_bytes_ = response.total_bytes;
  if (total_bytes_ < 0 && wanted_.sha256.empty())
    return Error{ErrorCode::io,
                 where + ": expected a size or a checksum, found neither: a cut would not show"};
  if (total_bytes_ >= 0)
    KAPITSA_TRY(check_room(part_.parent_path(), total_bytes_ - file_->size(), free_bytes_));
  known_ = {wanted_.request.url, response.etag, wanted_.sha256};
  return write_file_atomic(note_, json::serialize(json::object{{"url", known_.url},
                                                               {"etag", known_.etag},
                                                               {"sha256", known_.sha256}}));
}

Status Transfer::body(std::span<const std::byte> bytes) {
  const auto n = static_cast<int64_t>(bytes.size());
  if (total_bytes_ >= 0 && file_->size() + n > total_bytes_)
    return Error{ErrorCode::io, fmt::format("{}: expected {} bytes, found more",
                                            shown_url(wanted_.request.url), total_bytes_)};
  KAPITSA_TRY(file_->append(bytes));
  hash_.update(bytes);
  report(Stage::transferring, file_->size(), n);
  return {};
}

Status Transfer::fetch() {
  if (complete()) return {};
  const HttpReceiver receiver{
      .start = [this](const HttpResponse& response) { return start(response); },
      .body = [this](std::span<const std::byte> bytes) { return body(bytes); }};
  const auto got = client_.get([this](int status) { return next_request(status); }, receiver);
  if (!got) return got.error();
  if (total_bytes_ >= 0 && !complete())
    return Error{ErrorCode::io,
                 fmt::format("{}: expected {} bytes, found {}", shown_url(wanted_.request.url),
                             total_bytes_, file_->size())};
  return {};
}

Status Transfer::verify(const std::string& found) {
  if (wanted_.sha256.empty() || found == wanted_.sha256) return {};
  return Error{ErrorCode::corrupt_file,
               fmt::format("{}: damaged: expected SHA-256 {}, found {}; nothing of it was kept",
                           shown_url(wanted_.request.url), wanted_.sha256, found)};
}

Status Transfer::publish() {
  KAPITSA_TRY(file_->flush());
  file_.reset();
  std::error_code error;
  fs::rename(part_, wanted_.target, error);
  if (error)
    return Error{ErrorCode::io, fmt::format("{}: cannot rename it to {}: {}", part_.string(),
                                            wanted_.target.filename().string(), error.message())};
  remove_quietly(note_);
  return flush_folder(wanted_.target.parent_path());
}

Result<Downloaded> Transfer::run() {
  std::error_code error;
  const auto there = fs::file_size(wanted_.target, error);
  if (!error && !wanted_.sha256.empty() && static_cast<int64_t>(there) == wanted_.bytes) {
    Sha256 hash;
    total_bytes_ = wanted_.bytes;
    KAPITSA_TRY(hash_file(wanted_.target, hash, [&](int64_t done) {
      report(Stage::checking, done, 0);
      return !client_.cancelled();
    }));
    if (hash.hex() == wanted_.sha256) return Downloaded{wanted_.bytes, wanted_.sha256};
  }
  KAPITSA_TRY(open_part());
  // A second round, from the first byte, where what an earlier run left was of no use.
  for (int round = 1;; ++round) {
    Status status = fetch();
    std::string found;
    if (status) {
      found = hash_.hex();
      const bool suspect = resumed_;
      status = verify(found);
      stale_ = !status && suspect;
    }
    if (status) {
      const int64_t bytes = file_->size();
      KAPITSA_TRY(publish());
      return Downloaded{bytes, std::move(found)};
    }
    const bool damaged = status.error().code == ErrorCode::corrupt_file;
    if (stale_ && round == 1) {
      stale_ = false;
      KAPITSA_TRY(restart());
      continue;
    }
    if (damaged || file_->size() == 0) {
      remove_quietly(part_);
      remove_quietly(note_);
    }
    return status.error();
  }
}

// Sums the reports of all files of a set.
class Meter {
public:
  Meter(const std::vector<Download>& downloads, const ProgressSink& sink)
      : sink_(sink), files_(downloads.size()) {
    for (size_t i = 0; i < downloads.size(); ++i)
      files_[i].total = downloads[i].bytes;
    state_.n_files = static_cast<int>(downloads.size());
  }

  void take(size_t index, const std::string& name, const FileReport& report) {
    const std::lock_guard lock(mutex_);
    files_[index] = report;
    state_.fresh_bytes += report.fresh;
    state_.stage = report.stage;
    state_.file = name;
    send();
  }
  void finish(size_t index, const std::string& name, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    files_[index].done = files_[index].total = bytes;
    state_.file = name;
    ++state_.files_done;
    send();
  }

private:
  void send() {
    if (!sink_) return;
    state_.done_bytes = state_.total_bytes = 0;
    for (const FileReport& file : files_) {
      state_.done_bytes += file.done;
      state_.total_bytes =
          file.total < 0 || state_.total_bytes < 0 ? -1 : state_.total_bytes + file.total;
    }
    sink_(state_);
  }

  const ProgressSink& sink_;
  std::mutex mutex_;
  std::vector<FileReport> files_;
  Progress state_;
};

}  // namespace

Result<std::vector<Downloaded>> download_all(const HttpClient& client,
                                             const std::vector<Download>& downloads,
                                             const DownloadOptions& options) {
  std::atomic<bool> stop = false;
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> failure;
  std::vector<Downloaded> results(downloads.size());
  Meter meter(downloads, options.progress);
  HttpOptions http = client.options();
  http.cancelled = [&] { return stop.load() || client.cancelled(); };
  const HttpClient stoppable(http);

  const auto work = [&] {
    for (size_t i = next++; i < downloads.size() && !stop; i = next++) {
      const std::string name = downloads[i].target.filename().string();
      const FileSink sink = [&, i](const FileReport& report) { meter.take(i, name, report); };
      auto done = Transfer(stoppable, downloads[i], options.free_bytes, sink).run();
      if (done) {
        meter.finish(i, name, done->bytes);
        results[i] = std::move(*done);
        continue;
      }
      const std::lock_guard lock(mutex);
      if (!failure) failure = done.error();
      stop = true;
    }
  };
  std::vector<std::thread> threads;
  const size_t n_threads =
      std::min(downloads.size(), static_cast<size_t>(std::max(1, options.parallel)));
  for (size_t i = 1; i < n_threads; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads)
    thread.join();
  if (failure) return *failure;
  return results;
}

Status check_room(const fs::path& folder, int64_t needed, const FreeBytes& free_bytes) {
  KAPITSA_ASSIGN(const int64_t free, free_bytes ? free_bytes(folder) : free_disk_bytes(folder));
  if (needed <= 0 || free - kSpareBytes >= needed) return {};
  return Error{ErrorCode::io,
               fmt::format("{}: not enough room on this disk: {} more are needed, {} are free; "
                           "remove something ('kapitsa rm') or set KAPITSA_HOME to another disk",
                           folder.string(), shown_bytes(needed + kSpareBytes), shown_bytes(free))};
}

std::string shown_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1000.0;
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace kapitsa::hub
