#include "hub/zip.h"

#include "base/file.h"

#include <zlib.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace kapitsa::hub {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kPiece = size_t{1} << 20;  // bytes handed on at a time
// Signatures and the sizes of the fixed parts, APPNOTE 4.3.7 (local header), 4.3.12 (central
// directory), 4.3.14 and 4.3.15 (ZIP64 end), 4.3.16 (end).
constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kEnd64LocatorBytes = 20;
constexpr size_t kMaxComment = 65535;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kEncrypted = 1;           // bit of the flags
constexpr uint32_t kInExtra32 = 0xffffffff;  // the value is in the ZIP64 extra field
constexpr uint16_t kZip64Extra = 1;

template <typename T>
T little(Bytes bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(
        value | (static_cast<T>(std::to_integer<uint8_t>(bytes[offset + i])) << (8 * i)));
  return value;
}

struct Entry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0;
  uint64_t size = 0;
  uint64_t local_offset = 0;
};

struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
};

class Archive {
public:
  Archive(Bytes bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  Result<Entry> find(std::string_view wanted) const;
  Result<Bytes> data(const Entry& entry) const;
  Error broken(uint64_t offset, std::string_view expected) const {
    return {ErrorCode::corrupt_file,
            fmt::format("{}: offset {}: not a usable ZIP archive: expected "
                        "{}",
                        name_, offset, expected)};
  }

private:
  bool holds(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  Result<Directory> directory() const;
  Status read_zip64(Entry& entry, Bytes extra, uint64_t offset) const;

  Bytes bytes_;
  std::string name_;
};

Result<Directory> Archive::directory() const {
  if (bytes_.size() < kEndBytes) return broken(0, "an end record, found too short a file");
  const size_t lowest = bytes_.size() - std::min(bytes_.size(), kEndBytes + kMaxComment);
  std::optional<size_t> end;
  for (size_t at = bytes_.size() - kEndBytes + 1; at-- > lowest && !end;) {
    if (little<uint32_t>(bytes_, at) == kEnd) end = at;
  }
  if (!end) return broken(lowest, "an end record, found none: it was cut or is not a ZIP");
  Directory found{little<uint32_t>(bytes_, *end + 16), little<uint32_t>(bytes_, *end + 12)};
  const bool has_locator = *end >= kEnd64LocatorBytes &&
                           little<uint32_t>(bytes_, *end - kEnd64LocatorBytes) == kEnd64Locator;
  if (has_locator) {
    const auto at = little<uint64_t>(bytes_, *end - kEnd64LocatorBytes + 8);
    if (!holds(at, kEnd64Bytes) || little<uint32_t>(bytes_, at) != kEnd64)
      return broken(*end - kEnd64LocatorBytes, "a ZIP64 end record where it points");
    found = {little<uint64_t>(bytes_, at + 48), little<uint64_t>(bytes_, at + 40)};
  }
  if (!holds(found.offset, found.size)) return broken(*end, "a directory inside of the file");
  return found;
}

// The extra field holds, in this order, those of the values that did not fit (APPNOTE 4.5.3).
Status Archive::read_zip64(Entry& entry, Bytes extra, uint64_t offset) const {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = little<uint16_t>(extra, at);
    const auto size = little<uint16_t>(extra, at + 2);
    at += 4;
    if (size > extra.size() - at) return broken(offset, "an extra field that ends inside");
    if (id == kZip64Extra) {
      const Bytes values = extra.subspan(at, size);
      size_t used = 0;
      for (uint64_t* value : {&entry.size, &entry.packed, &entry.local_offset}) {
        if (*value != kInExtra32) continue;
        if (values.size() - used < 8) return broken(offset, "a whole ZIP64 extra field");
        *value = little<uint64_t>(values, used);
        used += 8;
      }
    }
    at += size;
  }
  return {};
}

Result<Entry> Archive::find(std::string_view wanted) const {
  KAPITSA_ASSIGN(const Directory where, directory());
  const std::string as_suffix = fmt::format("/{}", wanted);
  std::vector<Entry> found;
  const uint64_t end = where.offset + where.size;
  for (uint64_t at = where.offset; at < end;) {
    if (end - at < kCentralBytes || little<uint32_t>(bytes_, at) != kCentral)
      return broken(at, "an entry of the directory");
    Entry entry;
    entry.flags = little<uint16_t>(bytes_, at + 8);
    entry.method = little<uint16_t>(bytes_, at + 10);
    entry.crc = little<uint32_t>(bytes_, at + 16);
    entry.packed = little<uint32_t>(bytes_, at + 20);
    entry.size = little<uint32_t>(bytes_, at + 24);
    const uint64_t name_bytes = little<uint16_t>(bytes_, at + 28);
    const uint64_t extra_bytes = little<uint16_t>(bytes_, at + 30);
    const uint64_t comment_bytes = little<uint16_t>(bytes_, at + 32);
    entry.local_offset = little<uint32_t>(bytes_, at + 42);
    const uint64_t whole = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    if (whole > end - at) return broken(at, "an entry that ends inside of the directory");
    const Bytes name = bytes_.subspan(at + kCentralBytes, name_bytes);
    for (const std::byte b : name)
      entry.name.push_back(static_cast<char>(b));
    const Bytes extra = bytes_.subspan(at + kCentralBytes + name_bytes, extra_bytes);
    KAPITSA_TRY(read_zip64(entry, extra, at));
    if (entry.name == wanted) return entry;
    if (entry.name.ends_with(as_suffix)) found.push_back(std::move(entry));
    at += whole;
  }
  if (found.size() == 1) return std::move(found.front());
  return Error{ErrorCode::not_found,
               fmt::format("{}: expected one member {}, found {}", name_, wanted, found.size())};
}

Result<Bytes> Archive::data(const Entry& entry) const {
  const uint64_t at = entry.local_offset;
  if (!holds(at, kLocalBytes) || little<uint32_t>(bytes_, at) != kLocal)
    return broken(at, "a member where the directory points");
  // The local name and extra field may be longer or shorter than those of the directory.
  const uint64_t start =
      at + kLocalBytes + little<uint16_t>(bytes_, at + 26) + little<uint16_t>(bytes_, at + 28);
  if (!holds(start, entry.packed)) return broken(at, "a member that ends inside of the file");
  return bytes_.subspan(start, entry.packed);
}

// Raw deflate; stops with an error when more than `limit` bytes come out.
Status inflate_all(Bytes packed, uint64_t limit, const std::function<Status(Bytes)>& piece,
                   const Error& damaged) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return Error{ErrorCode::out_of_memory, "no memory to unpack an archive"};
  struct Ender {
    z_stream* stream;
    ~Ender() { inflateEnd(stream); }
  } const ender{&stream};
  std::vector<std::byte> out(kPiece);
  uint64_t produced = 0;
  int code = Z_OK;
  while (code != Z_STREAM_END) {
    if (stream.avail_in == 0 && !packed.empty()) {
      const size_t n = std::min(packed.size(), size_t{1} << 30);
      // zlib does not write to its input, but older headers do not say so.
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
      stream.avail_in = static_cast<uInt>(n);
      packed = packed.subspan(n);
    }
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return damaged;
    const size_t n = out.size() - stream.avail_out;
    produced += n;
    if (produced > limit || (n == 0 && code == Z_OK)) return damaged;
    if (n > 0) KAPITSA_TRY(piece(Bytes(out).first(n)));
  }
  return {};
}

}  // namespace

Status unzip_member(const std::filesystem::path& archive, std::string_view name,
                    const std::function<Status(const ZipMember&)>& start,
                    const std::function<Status(std::span<const std::byte>)>& piece) {
  KAPITSA_ASSIGN(const MappedFile file, MappedFile::open(archive));
  const Archive zip(file.bytes(), archive.string());
  KAPITSA_ASSIGN(const Entry entry, zip.find(name));
  KAPITSA_ASSIGN(Bytes packed, zip.data(entry));
  if ((entry.flags & kEncrypted) != 0 || (entry.method != kStored && entry.method != kDeflated))
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: {}: expected a stored or deflated member, found method {}{}",
                             archive.string(), entry.name, entry.method,
                             (entry.flags & kEncrypted) != 0 ? ", encrypted" : "")};
  if (entry.size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return zip.broken(entry.local_offset, "a possible size");
  KAPITSA_TRY(start({static_cast<int64_t>(entry.packed), static_cast<int64_t>(entry.size)}));

  uLong crc = crc32(0, nullptr, 0);
  uint64_t produced = 0;
  const auto take = [&](Bytes bytes) -> Status {
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    produced += bytes.size();
    return piece(bytes);
  };
  const Error damaged = zip.broken(entry.local_offset, "member " + entry.name + " undamaged");
  if (entry.method == kDeflated) {
    KAPITSA_TRY(inflate_all(packed, entry.size, take, damaged));
  } else {
    for (; !packed.empty(); packed = packed.subspan(std::min(kPiece, packed.size())))
      KAPITSA_TRY(take(packed.first(std::min(kPiece, packed.size()))));
  }
  if (produced != entry.size || crc != entry.crc) return damaged;
  return {};
}

}  // namespace kapitsa::hub
