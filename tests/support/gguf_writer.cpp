// The GGUF layout is written independently of the reader, so that the two check each other.
#include "support/gguf_writer.h"

#include "base/check.h"
#include "base/file.h"

#include <cstring>
#include <type_traits>

namespace kapitsa::test {
namespace {

template <typename T>
void append(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  out.append(text);
}

void pad(std::string& out, uint32_t alignment) {
  while (out.size() % alignment != 0)
    out.push_back('\0');
}

// Numbers of the GGUF metadata types and of ggml's tensor types.
constexpr uint32_t kBool = 7;
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;

uint32_t ggml_type(DType dtype) {
  switch (dtype) {
  case DType::f32: return 0;
  case DType::f16: return 1;
  case DType::q4_0: return 2;
  case DType::q4_1: return 3;
  case DType::q5_0: return 6;
  case DType::q5_1: return 7;
  case DType::q8_0: return 8;
  case DType::q2_k: return 10;
  case DType::q3_k: return 11;
  case DType::q4_k: return 12;
  case DType::q5_k: return 13;
  case DType::q6_k: return 14;
  case DType::iq2_xxs: return 16;
  case DType::iq2_xs: return 17;
  case DType::iq3_xxs: return 18;
  case DType::iq1_s: return 19;
  case DType::iq4_nl: return 20;
  case DType::iq3_s: return 21;
  case DType::iq2_s: return 22;
  case DType::iq4_xs: return 23;
  case DType::i8: return 24;
  case DType::i16: return 25;
  case DType::i32: return 26;
  case DType::i64: return 27;
  case DType::f64: return 28;
  case DType::iq1_m: return 29;
  case DType::bf16: return 30;
  case DType::mxfp4: return 39;
  case DType::nvfp4: return 40;
  case DType::grouped:
  case DType::u8:
  case DType::u32: break;
  }
  KAPITSA_CHECK(false, "a DType that GGUF does not have");
  return 0;
}

template <typename T>
void append_array(std::string& out, uint32_t type, const std::vector<T>& values) {
  append(out, type);
  append(out, uint64_t{values.size()});
  for (const T value : values)
    append(out, value);
}

}  // namespace

void GgufWriter::entry(std::string_view key, uint32_t type) {
  append_string(metadata_, key);
  append(metadata_, type);
  ++n_entries_;
}

GgufWriter& GgufWriter::set(std::string_view key, bool value) {
  entry(key, kBool);
  append(metadata_, static_cast<uint8_t>(value));
  return *this;
}

#define KAPITSA_SET_SCALAR(Type, number)                                                           \
  GgufWriter& GgufWriter::set(std::string_view key, Type value) {                                  \
    entry(key, number);                                                                            \
    append(metadata_, value);                                                                      \
    return *this;                                                                                  \
  }
KAPITSA_SET_SCALAR(uint8_t, 0)
KAPITSA_SET_SCALAR(int8_t, 1)
KAPITSA_SET_SCALAR(uint16_t, 2)
KAPITSA_SET_SCALAR(int16_t, 3)
KAPITSA_SET_SCALAR(uint32_t, 4)
KAPITSA_SET_SCALAR(int32_t, 5)
KAPITSA_SET_SCALAR(float, 6)
KAPITSA_SET_SCALAR(uint64_t, 10)
KAPITSA_SET_SCALAR(int64_t, 11)
KAPITSA_SET_SCALAR(double, 12)
#undef KAPITSA_SET_SCALAR

GgufWriter& GgufWriter::set(std::string_view key, std::string_view value) {
  entry(key, kString);
  append_string(metadata_, value);
  return *this;
}

GgufWriter& GgufWriter::set(std::string_view key, const char* value) {
  return set(key, std::string_view(value));
}

GgufWriter& GgufWriter::set(std::string_view key, const std::vector<bool>& values) {
  entry(key, kArray);
  append_array(metadata_, kBool, values);
  return *this;
}

#define KAPITSA_SET_ARRAY(Type, number)                                                            \
  GgufWriter& GgufWriter::set(std::string_view key, const std::vector<Type>& values) {             \
    entry(key, kArray);                                                                            \
    append_array(metadata_, number, values);                                                       \
    return *this;                                                                                  \
  }
KAPITSA_SET_ARRAY(uint32_t, 4)
KAPITSA_SET_ARRAY(int32_t, 5)
KAPITSA_SET_ARRAY(float, 6)
KAPITSA_SET_ARRAY(uint64_t, 10)
#undef KAPITSA_SET_ARRAY

GgufWriter& GgufWriter::set(std::string_view key, const std::vector<std::string>& values) {
  entry(key, kArray);
  append(metadata_, kString);
  append(metadata_, uint64_t{values.size()});
  for (const std::string& value : values)
    append_string(metadata_, value);
  return *this;
}

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return set("general.alignment", alignment);
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, DType dtype,
                                   const std::vector<int64_t>& shape,
                                   std::span<const std::byte> data) {
  append_string(tensor_entries_, name);
  append(tensor_entries_, static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i-- > 0;)
    append(tensor_entries_, shape[i]);
  append(tensor_entries_, ggml_type(dtype));
  pad(data_, alignment_);
  append(tensor_entries_, uint64_t{data_.size()});
  data_.append(reinterpret_cast<const char*>(data.data()), data.size());
  ++n_tensors_;
  return *this;
}

GgufWriter& GgufWriter::add_f32(std::string_view name, const std::vector<int64_t>& shape,
                                std::span<const float> values) {
  return add_tensor(name, DType::f32, shape, std::as_bytes(values));
}

std::string GgufWriter::bytes() const {
  std::string out = "GGUF";
  append(out, version_);
  append(out, n_tensors_);
  append(out, n_entries_);
  out += metadata_;
  out += tensor_entries_;
  pad(out, alignment_);
  out += data_;
  return out;
}

void GgufWriter::write(const std::filesystem::path& path) const {
  const Status written = write_file_atomic(path, bytes());
  KAPITSA_CHECK(written.ok(), written.error().message.c_str());
}

}  // namespace kapitsa::test
