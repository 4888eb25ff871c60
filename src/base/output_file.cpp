#include "base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace kapitsa {
namespace {

Error system_error(const std::filesystem::path& path, std::string_view action) {
  const int saved_errno = errno;
  std::string message = path.string();
  message.append(": cannot ").append(action).append(": ").append(std::strerror(saved_errno));
  if (saved_errno == ENOSPC || saved_errno == EDQUOT)
    message.append("; make room on this disk and try again");
  return {saved_errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, std::move(message)};
}

}  // namespace

Result<OutputFile> OutputFile::open(const std::filesystem::path& path) {
  OutputFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return system_error(path, "open for writing");
  struct stat info{};
  if (::fstat(file.fd_, &info) != 0) return system_error(path, "read its size");
  file.size_ = info.st_size;
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)),
      size_(std::exchange(other.size_, 0)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OutputFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    size_ += written;
  }
  return {};
}

Status OutputFile::append_zeros(int64_t n) {
  KAPITSA_CHECK(n >= 0, "a file grows by a positive number of zeros");
  if (::ftruncate(fd_, size_ + n) != 0) return system_error(path_, "write");
  size_ += n;
  return {};
}

Status OutputFile::truncate(int64_t size) {
  KAPITSA_CHECK(size <= size_, "truncate cannot grow a file");
  if (::ftruncate(fd_, size) != 0) return system_error(path_, "shorten");
  size_ = size;
  return {};
}

Status OutputFile::flush() {
  if (::fsync(fd_) != 0) return system_error(path_, "flush");
  return {};
}

Result<FileLock> FileLock::acquire(const std::filesystem::path& path) {
  while (true) {
    FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (lock.fd_ < 0) return system_error(path, "open");
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        return Error{ErrorCode::unsupported, path.string() + ": locked by another process"};
      return system_error(path, "lock");
    }
    // Whoever had it may have removed the file meanwhile: a lock on that keeps nobody out.
    struct stat held{};
    struct stat named{};
    if (::fstat(lock.fd_, &held) != 0) return system_error(path, "lock");
    if (::stat(path.c_str(), &named) == 0 && named.st_ino == held.st_ino &&
        named.st_dev == held.st_dev)
      return lock;
  }
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

Status flush_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error(folder, "open");
  // Some file systems cannot flush a folder; there is nothing more to do then.
  ::fsync(fd);
  ::close(fd);
  return {};
}

Result<int64_t> free_disk_bytes(const std::filesystem::path& folder) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) return system_error(folder, "read its free room");
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const uint64_t unit = std::max<uint64_t>(info.f_frsize, 1);
  return static_cast<int64_t>(std::min<uint64_t>(info.f_bavail, most / unit) * unit);
}

}  // namespace kapitsa
