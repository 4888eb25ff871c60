// A forward walk over the header of a little-endian binary file. Never reads past the end and never
// moves past it; every failure names the file, the offset and what was expected there.
#pragma once

#include "base/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kapitsa::weights {

static_assert(std::endian::native == std::endian::little, "files are read in native byte order");

class ByteCursor {
public:
  // Reads at most `limit` bytes; reaching the limit of a longer file is an error of its own.
  ByteCursor(std::span<const std::byte> bytes, std::string file, size_t limit)
      : bytes_(bytes.first(std::min(bytes.size(), limit))), file_size_(bytes.size()),
        file_(std::move(file)) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  size_t file_size() const { return file_size_; }
  const std::string& file() const { return file_; }

  template <typename T>
  Status read(T& out, std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return ends_early(sizeof(T), what);
    last_ = offset_;
    std::memcpy(&out, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return {};
  }

  // A view into the file.
  Result<std::span<const std::byte>> read_bytes(uint64_t n, std::string_view what) {
    if (n > remaining()) return ends_early(n, what);
    const auto bytes = bytes_.subspan(offset_, static_cast<size_t>(n));
    offset_ += bytes.size();
    return bytes;
  }

  // u64 length, then that many bytes.
  Result<std::string_view> read_string(std::string_view what) {
    uint64_t length = 0;
    KAPITSA_TRY(read(length, what));
    if (length > remaining()) return ends_early(length, what);
    last_ = offset_ - sizeof length;
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + offset_),
                                static_cast<size_t>(length));
    offset_ += text.size();
    return text;
  }

  // Refuses a count of items, each of at least `item_bytes` bytes, that the rest of the file cannot
  // hold. To be called before anything is allocated by the count.
  Status check_count(uint64_t count, size_t item_bytes, std::string_view what) const {
    if (count <= remaining() / item_bytes) return {};
    if (limited()) return over_limit(what);
    return error(ErrorCode::corrupt_file,
                 fmt::format("expected {}, found a count of {}, which the {} bytes left in the "
                             "file cannot hold",
                             what, count, remaining()));
  }

  // At the place of the number or string that was read last.
  Error error(ErrorCode code, std::string_view message) const {
    return error_at(last_, code, message);
  }

private:
  Error error_at(size_t offset, ErrorCode code, std::string_view message) const {
    return {code, fmt::format("{}: offset {}: {}", file_, offset, message)};
  }

  bool limited() const { return bytes_.size() < file_size_; }

  Error over_limit(std::string_view what) const {
    return error_at(offset_, ErrorCode::unsupported,
                    fmt::format("expected a header of at most {} bytes, but {} reaches beyond",
                                bytes_.size(), what));
  }

  Error ends_early(uint64_t wanted, std::string_view what) const {
    if (limited()) return over_limit(what);
    return error_at(offset_, ErrorCode::corrupt_file,
                    fmt::format("expected {} bytes for {}, found {} before the end of the file "
                                "(truncated download?)",
                                wanted, what, remaining()));
  }

  std::span<const std::byte> bytes_;
  size_t file_size_ = 0;
  size_t offset_ = 0;
  size_t last_ = 0;  // where the number or string that was read last begins
  std::string file_;
};

}  // namespace kapitsa::weights
