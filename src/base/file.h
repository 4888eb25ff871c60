// Files as the engine needs them: a read-only mapping, whole-file reads, and atomic writes. The
// only place, with thread_pool and system, that calls the operating system; everything returns a
// one-line error that names the path.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kapitsa {

// A whole file mapped read-only. Movable; unmaps when destroyed. A file that shrinks while mapped
// is outside the contract (reading it then raises SIGBUS, as with every mapping).
class MappedFile {
public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Takes the whole pages of this part, if it is one, out of this process; they come back from the
  // system's cache, or the disk, when they are read again.
  void release(std::span<const std::byte> part) const;
  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Fails when the file is larger than `max_bytes`, so that a wrong path cannot fill the memory.
Result<std::string> read_text_file(const std::filesystem::path& path,
                                   int64_t max_bytes = int64_t{64} << 20);

// What a write to `path` goes to: the file that a symbolic link names, else the path itself.
std::filesystem::path write_target(const std::filesystem::path& path);
// Whether the path exists and is no regular file (a device, a pipe): it cannot be replaced whole.
bool is_special_file(const std::filesystem::path& path);

// Writes to a temporary name in the same folder and renames: a reader sees the old file or the new
// one, never a part. A symbolic link stays, and what it names is replaced; a device or a pipe is
// written as it is.
Status write_file_atomic(const std::filesystem::path& path, std::string_view content);
// Whether write_file_atomic could begin now: for work whose result would be lost otherwise.
Status check_can_write(const std::filesystem::path& path);

}  // namespace kapitsa
