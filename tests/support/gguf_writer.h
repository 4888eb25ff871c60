// Builds small GGUF files for tests: metadata of every type, tensors of every element type, in
// the order in which they are added. Writes what it is told, also what a reader must refuse (a
// name twice, an odd alignment); only the layout is always well-formed.
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

class GgufWriter {
public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // Stored with the GGUF type of the C++ type: int32_t as i32, float as f32, and so on.
  GgufWriter& set(std::string_view key, bool value);
  GgufWriter& set(std::string_view key, uint8_t value);
  GgufWriter& set(std::string_view key, int8_t value);
  GgufWriter& set(std::string_view key, uint16_t value);
  GgufWriter& set(std::string_view key, int16_t value);
  GgufWriter& set(std::string_view key, uint32_t value);
  GgufWriter& set(std::string_view key, int32_t value);
  GgufWriter& set(std::string_view key, uint64_t value);
  GgufWriter& set(std::string_view key, int64_t value);
  GgufWriter& set(std::string_view key, float value);
  GgufWriter& set(std::string_view key, double value);
  GgufWriter& set(std::string_view key, std::string_view value);
  GgufWriter& set(std::string_view key, const char* value);
  GgufWriter& set(std::string_view key, const std::vector<bool>& values);
  GgufWriter& set(std::string_view key, const std::vector<uint32_t>& values);
  GgufWriter& set(std::string_view key, const std::vector<int32_t>& values);
  GgufWriter& set(std::string_view key, const std::vector<uint64_t>& values);
  GgufWriter& set(std::string_view key, const std::vector<float>& values);
  GgufWriter& set(std::string_view key, const std::vector<std::string>& values);

  // Shape outermost first, as in Tensor; data of dtype_bytes(dtype, product of shape) bytes.
  GgufWriter& add_tensor(std::string_view name, DType dtype, const std::vector<int64_t>& shape,
                         std::span<const std::byte> data);
  GgufWriter& add_f32(std::string_view name, const std::vector<int64_t>& shape,
                      std::span<const float> values);

  // Used for the offsets of tensors added after it; also stored as general.alignment.
  GgufWriter& set_alignment(uint32_t alignment);

  std::string bytes() const;
  // Aborts the test program when the file cannot be written.
  void write(const std::filesystem::path& path) const;

private:
  void entry(std::string_view key, uint32_t type);

  uint32_t version_;
  uint32_t alignment_ = 32;
  uint64_t n_entries_ = 0;
  uint64_t n_tensors_ = 0;
  std::string metadata_;
  std::string tensor_entries_;
  std::string data_;
};

}  // namespace kapitsa::test
