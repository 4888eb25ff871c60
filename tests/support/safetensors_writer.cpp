#include "support/safetensors_writer.h"

#include "base/check.h"
#include "base/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace kapitsa::test {

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  return out.append(header).append(data);
}

SafetensorsWriter& SafetensorsWriter::add(std::string_view name, DType dtype,
                                          const std::vector<int64_t>& shape,
                                          std::span<const std::byte> data) {
  std::string type(dtype_info(dtype).name);
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  tensors_ += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                          type, fmt::join(shape, ","), data_.size(), data_.size() + data.size());
  data_.append(reinterpret_cast<const char*>(data.data()), data.size());
  return *this;
}

SafetensorsWriter& SafetensorsWriter::metadata(std::string_view key, std::string_view value) {
  metadata_ += fmt::format(R"({}"{}":"{}")", metadata_.empty() ? "" : ",", key, value);
  return *this;
}

std::string SafetensorsWriter::bytes() const {
  std::string header = "{\"__metadata__\":{" + metadata_ + "}" + tensors_ + "}";
  while (header.size() % 8 != 0)
    header.push_back(' ');
  return safetensors_bytes(header, data_);
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  const Status written = write_file_atomic(path, bytes());
  KAPITSA_CHECK(written.ok(), written.error().message.c_str());
}

}  // namespace kapitsa::test
