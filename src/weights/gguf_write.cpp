// The layout of gguf.cpp from the other side: header, then every tensor at a multiple of the
// alignment. Integers are written as u32 where they fit and arrays of integers as i32, as published
// files have them; others have 64 bits.
#include "weights/gguf_write.h"

#include "base/file.h"
#include "base/output_file.h"
#include "weights/ggml_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>

namespace kapitsa::weights {
namespace {

constexpr int64_t kAlignment = 32;  // bytes; GGUF's default

// enum gguf_metadata_value_type of the GGUF specification.
enum class Type : uint32_t {
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11
};

class Header {
public:
  template <typename T>
  void number(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void type(Type type) { number(static_cast<uint32_t>(type)); }
  void string(std::string_view text) {
    number(static_cast<uint64_t>(text.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }
  void pad() {
    while (bytes_.size() % kAlignment != 0)
      bytes_.push_back({});
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

private:
  std::vector<std::byte> bytes_;
};

// One overload for each alternative of Value.
struct WriteValue {
  Header& out;

  void operator()(bool value) const {
    out.type(Type::boolean);
    out.number(static_cast<uint8_t>(value));
  }
  void operator()(int64_t value) const {
    if (value >= 0 && value <= UINT32_MAX) {
      out.type(Type::u32);
      out.number(static_cast<uint32_t>(value));
    } else {
      out.type(Type::i64);
      out.number(value);
    }
  }
  void operator()(uint64_t value) const { (*this)(static_cast<int64_t>(value)); }
  void operator()(double value) const {
    out.type(Type::f32);
    out.number(static_cast<float>(value));
  }
  void operator()(const std::string& value) const {
    out.type(Type::string);
    out.string(value);
  }
  void operator()(const std::vector<bool>& values) const {
    array(Type::boolean, values.size());
    for (const bool value : values)
      out.number(static_cast<uint8_t>(value));
  }
  void operator()(const std::vector<int64_t>& values) const {
    const auto fits = [](int64_t value) { return value == static_cast<int32_t>(value); };
    if (std::ranges::all_of(values, fits)) {
      array(Type::i32, values.size());
      for (const int64_t value : values)
        out.number(static_cast<int32_t>(value));
      return;
    }
    array(std::ranges::any_of(values, [](int64_t value) { return value < 0; }) ? Type::i64
                                                                               : Type::u64,
          values.size());
    for (const int64_t value : values)
      out.number(value);
  }
  void operator()(const std::vector<double>& values) const {
    array(Type::f32, values.size());
    for (const double value : values)
      out.number(static_cast<float>(value));
  }
  void operator()(const StringList& values) const {
    array(Type::string, values.size());
    for (size_t i = 0; i < values.size(); ++i)
      out.string(values[i]);
  }

private:
  void array(Type type, size_t n) const {
    out.type(Type::array);
    out.type(type);
    out.number(static_cast<uint64_t>(n));
  }
};

std::optional<uint32_t> type_id(DType dtype) {
  const auto* found = std::ranges::find(kGgmlTypes, dtype, &GgmlType::dtype);
  return found == std::end(kGgmlTypes) ? std::nullopt : std::optional(found->id);
}

int64_t padded(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Result<Header> header_of(const GgufSource& source) {
  Header header;
  header.number(uint32_t{0x46554747});  // "GGUF"
  header.number(uint32_t{3});
  header.number(static_cast<uint64_t>(source.tensors.size()));
  header.number(static_cast<uint64_t>(source.metadata.size()));
  for (const auto& [key, value] : source.metadata) {
    header.string(key);
    std::visit(WriteValue{header}, value);
  }
  int64_t offset = 0;
  for (const Tensor& tensor : source.tensors) {
    const auto id = type_id(tensor.dtype);
    const auto bytes = dtype_bytes(tensor.dtype, tensor.n_elements());
    if (!id || !bytes) {
      return Error{ErrorCode::unsupported, fmt::format("tensor '{}' cannot be written as {}",
                                                       tensor.name, dtype_info(tensor.dtype).name)};
    }
    header.string(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;)
      header.number(static_cast<uint64_t>(tensor.shape[i]));
    header.number(*id);
    header.number(static_cast<uint64_t>(offset));
    offset += padded(*bytes);
  }
  header.pad();
  return header;
}

bool is_hole(const GgufSource& source, const Tensor& tensor) {
  return source.is_zero && source.is_zero(tensor);
}

Status write_tensors(const GgufSource& source, int64_t total, OutputFile& file) {
  std::vector<std::byte> buffer;
  for (const Tensor& tensor : source.tensors) {
    const int64_t bytes = *dtype_bytes(tensor.dtype, tensor.n_elements());
    if (is_hole(source, tensor)) {
      KAPITSA_TRY(file.append_zeros(padded(bytes)));
    } else {
      buffer.assign(static_cast<size_t>(padded(bytes)), {});
      KAPITSA_TRY(source.data(tensor, std::span(buffer).first(static_cast<size_t>(bytes))));
      KAPITSA_TRY(file.append(buffer));
    }
    if (source.progress && !source.progress(file.size(), total))
      return Error{ErrorCode::cancelled, "stopped"};
  }
  return file.flush();
}

}  // namespace

Result<int64_t> write_gguf(const std::filesystem::path& wanted, const GgufSource& source) {
  const std::filesystem::path path = write_target(wanted);
  if (path.empty() || is_special_file(path)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("'{}': expected the name of a file to write", wanted.string())};
  }
  KAPITSA_ASSIGN(const Header header, header_of(source));
  auto total = static_cast<int64_t>(header.bytes().size());
  int64_t holes = 0;
  for (const Tensor& tensor : source.tensors) {
    const int64_t bytes = padded(*dtype_bytes(tensor.dtype, tensor.n_elements()));
    total += bytes;
    if (is_hole(source, tensor)) holes += bytes;
  }
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  KAPITSA_ASSIGN(const int64_t room, free_disk_bytes(folder));
  if (room < total - holes) {
    return Error{ErrorCode::io, fmt::format("{}: needs {} bytes, {} are free on its disk",
                                            path.string(), total - holes, room)};
  }
  std::filesystem::path part = path;
  part += ".part";
  std::error_code ignored;
  const auto write = [&]() -> Status {
    KAPITSA_ASSIGN(OutputFile file, OutputFile::open(part));
    KAPITSA_TRY(file.truncate(0));
    KAPITSA_TRY(file.append(header.bytes()));
    return write_tensors(source, total, file);
  };
  if (const Status written = write(); !written) {
    std::filesystem::remove(part, ignored);
    return written.error();
  }
  std::error_code renamed;
  std::filesystem::rename(part, path, renamed);
  if (renamed) {
    std::filesystem::remove(part, ignored);
    return Error{ErrorCode::io,
                 fmt::format("{}: cannot be written: {}", path.string(), renamed.message())};
  }
  return total;
}

}  // namespace kapitsa::weights
