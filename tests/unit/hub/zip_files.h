// Makes ZIP archives for tests, as a writer of wheels does.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kapitsa::test {

struct ZipFile {
  std::string name;
  std::string content;
  bool deflate = true;
};

inline std::string deflated(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()) + 16, '\0');
  std::string in = content;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline void put(std::string& out, uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; ++i)
    out.push_back(i < 8 ? static_cast<char>(value >> (8 * i)) : '\0');
}

// With `zip64`, sizes and offsets are in ZIP64 fields though they would fit.
inline std::string make_zip(const std::vector<ZipFile>& files, bool zip64 = false) {
  constexpr uint64_t kInExtra = 0xffffffff;
  std::string out;
  std::string directory;
  for (const ZipFile& file : files) {
    const std::string packed = file.deflate ? deflated(file.content) : file.content;
    const uint64_t crc =
        crc32_z(0, reinterpret_cast<const Bytef*>(file.content.data()), file.content.size());
    const uint64_t offset = out.size();
    std::string extra;
    if (zip64) {
      put(extra, 1, 2);
      put(extra, 24, 2);
      for (const uint64_t value : {uint64_t{file.content.size()}, uint64_t{packed.size()}, offset})
        put(extra, value, 8);
    }
    put(out, 0x04034b50, 4);
    const auto common = [&](std::string& to) {
      put(to, 20, 2);
      put(to, 0, 2);
      put(to, file.deflate ? 8 : 0, 2);
      put(to, 0, 4);
      put(to, crc, 4);
      put(to, zip64 ? kInExtra : packed.size(), 4);
      put(to, zip64 ? kInExtra : file.content.size(), 4);
      put(to, file.name.size(), 2);
    };
    common(out);
    put(out, 0, 2);
    out += file.name + packed;
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    common(directory);
    put(directory, extra.size(), 2);
    put(directory, 0, 10);
    put(directory, zip64 ? kInExtra : offset, 4);
    directory += file.name + extra;
  }
  const uint64_t start = out.size();
  out += directory;
  const uint64_t end64 = out.size();
  if (zip64) {
    put(out, 0x06064b50, 4);
    put(out, 44, 8);
    put(out, 0, 12);
    put(out, files.size(), 8);
    put(out, files.size(), 8);
    put(out, directory.size(), 8);
    put(out, start, 8);
    put(out, 0x07064b50, 4);
    put(out, 0, 4);
    put(out, end64, 8);
    put(out, 1, 4);
  }
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, files.size(), 2);
  put(out, files.size(), 2);
  put(out, zip64 ? kInExtra : directory.size(), 4);
  put(out, zip64 ? kInExtra : start, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace kapitsa::test
