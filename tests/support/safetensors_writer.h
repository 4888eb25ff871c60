// Builds small safetensors files for tests. Writes what it is told, also what a reader must refuse.
#pragma once

#include "base/dtype.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::test {

// Length, header and data as they are.
std::string safetensors_bytes(std::string_view header, std::string_view data);

class SafetensorsWriter {
public:
  // Names are not escaped: no quotes or backslashes. dtype is a plain number.
  SafetensorsWriter& add(std::string_view name, DType dtype, const std::vector<int64_t>& shape,
                         std::span<const std::byte> data);
  SafetensorsWriter& metadata(std::string_view key, std::string_view value);

  std::string bytes() const;
  // Aborts the test program when the file cannot be written.
  void write(const std::filesystem::path& path) const;

private:
  std::string metadata_;
  std::string tensors_;
  std::string data_;
};

}  // namespace kapitsa::test
