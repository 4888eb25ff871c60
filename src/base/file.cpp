#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace kapitsa {
namespace {

Error system_error(const std::filesystem::path& path, std::string_view action) {
  const int saved_errno = errno;
  const ErrorCode code = saved_errno == ENOENT ? ErrorCode::not_found : ErrorCode::io;
  std::string message = path.string();
  message.append(": cannot ").append(action).append(": ").append(std::strerror(saved_errno));
  return {code, std::move(message)};
}

// Opening a named pipe would wait for a writer; O_NONBLOCK lets its type be refused instead.
int open_for_reading(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

// Closes a descriptor when it leaves its scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Result<int64_t> regular_file_size(const Descriptor& file, const std::filesystem::path& path) {
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return system_error(path, "read its size");
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::io, path.string() + ": expected a file, found a folder or device"};
  return static_cast<int64_t>(info.st_size);
}

Status write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(path, "write");
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file{open_for_reading(path)};
  if (file.fd < 0) return system_error(path, "open");
  KAPITSA_ASSIGN(const int64_t size, regular_file_size(file, path));
  MappedFile mapped;
  mapped.path_ = path;
  if (size == 0) return mapped;  // mmap refuses an empty range
  void* address = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) return system_error(path, "map");
  mapped.data_ = static_cast<const std::byte*>(address);
  mapped.size_ = static_cast<size_t>(size);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto file = reinterpret_cast<uintptr_t>(data_);
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  if (part.empty() || begin < file || begin + part.size() > file + size_) return;
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + part.size()) / page * page;
  if (first < last)
    ::madvise(const_cast<std::byte*>(data_) + (first - file), last - first, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  const Descriptor file{open_for_reading(path)};
  if (file.fd < 0) return system_error(path, "open");
  KAPITSA_ASSIGN(const int64_t size, regular_file_size(file, path));
  if (size > max_bytes) {
    return Error{ErrorCode::io, path.string() + ": too large: expected at most " +
                                    std::to_string(max_bytes) + " bytes, found " +
                                    std::to_string(size)};
  }
  std::string content(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.fd, content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "read");
    if (got == 0) break;  // the file shrank while it was read
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

std::filesystem::path write_target(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target;
}

bool is_special_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

Status write_file_atomic(const std::filesystem::path& wanted, std::string_view content) {
  const std::filesystem::path path = write_target(wanted);
  if (is_special_file(path)) {
    const Descriptor file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (file.fd < 0) return system_error(path, "open");
    return write_all(file.fd, content, path);
  }
  std::string temporary = path.string() + ".XXXXXX";
  {
    const Descriptor file{::mkstemp(temporary.data())};
    if (file.fd < 0) return system_error(path, "create");
    Status written = write_all(file.fd, content, path);
    if (written && ::fsync(file.fd) != 0) written = system_error(path, "flush");
    if (!written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Error error = system_error(path, "rename into place");
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

Status check_can_write(const std::filesystem::path& wanted) {
  const std::filesystem::path path = write_target(wanted);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Error{ErrorCode::io, path.string() + ": expected a file to write, found a folder"};
  if (is_special_file(path))
    return ::access(path.c_str(), W_OK) == 0 ? Status() : system_error(path, "write");
  std::string temporary = path.string() + ".XXXXXX";
  const Descriptor file{::mkstemp(temporary.data())};
  if (file.fd < 0) return system_error(path, "create");
  ::unlink(temporary.c_str());
  return {};
}

}  // namespace kapitsa
