// Writing large files safely: a file that grows at its end, a lock between processes, and the free
// room of a disk. Whoever appends decides when the file is flushed and renamed; nothing here
// deletes. Errors are one line with the path.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace kapitsa {

// Movable; closes when destroyed, without a flush.
class OutputFile {
public:
  // Creates the file, or opens it with its content kept.
  static Result<OutputFile> open(const std::filesystem::path& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  int64_t size() const { return size_; }
  Status append(std::span<const std::byte> bytes);
  Status append_zeros(int64_t n);  // which take no room on the disk
  Status truncate(int64_t size);   // keeps the first `size` bytes; size <= size()
  Status flush();                  // until the disk has it

private:
  OutputFile() = default;
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;  // bytes
};

// An exclusive lock on a file, held while the object lives. The system releases it when a process
// ends in whatever way, so that a lock is never stale. The holder may remove the file.
class FileLock {
public:
  // Creates the file when it is missing. Does not wait: an error of code `unsupported` when another
  // holder, in this process or another, has the lock.
  static Result<FileLock> acquire(const std::filesystem::path& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Makes a rename in this folder survive a power cut.
Status flush_folder(const std::filesystem::path& folder);

// Bytes that this user may still write to the disk that holds `folder`, which must exist.
Result<int64_t> free_disk_bytes(const std::filesystem::path& folder);

}  // namespace kapitsa
