// Every type that a GGUF file can store becomes one of the few of checkpoint.h: integers of any
// width become int64_t, floating-point numbers double, both exactly.
#include "weights/gguf_value.h"

#include "weights/describe.h"

#include <limits>
#include <string>

namespace kapitsa::weights {
namespace {

// GGUF specification, enum gguf_metadata_value_type.
enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string value_of(std::string_view key) {
  return "the value of key " + quote(key);
}

Error unknown_type(const ByteCursor& cursor, std::string_view key, uint32_t type) {
  return cursor.error(
      ErrorCode::corrupt_file,
      fmt::format("expected a type number in 0..12 for {}, found {}", value_of(key), type));
}

// Bools are one byte that holds 0 or 1.
Result<bool> read_boolean(ByteCursor& cursor, std::string_view key) {
  uint8_t byte = 0;
  KAPITSA_TRY(cursor.read(byte, value_of(key)));
  if (byte > 1)
    return cursor.error(
        ErrorCode::corrupt_file,
        fmt::format("expected 0 or 1 as the boolean in {}, found {}", value_of(key), byte));
  return byte == 1;
}

template <typename T>
Result<Value> read_scalar(ByteCursor& cursor, std::string_view key) {
  T value{};
  KAPITSA_TRY(cursor.read(value, value_of(key)));
  if constexpr (std::is_floating_point_v<T>)
    return Value(static_cast<double>(value));
  else if constexpr (std::is_same_v<T, uint64_t>)
    return value <= uint64_t{std::numeric_limits<int64_t>::max()}
               ? Value(static_cast<int64_t>(value))
               : Value(value);
  else
    return Value(static_cast<int64_t>(value));
}

// T is what the file holds, Wide what the checkpoint keeps.
template <typename T, typename Wide>
Result<Value> read_numbers(ByteCursor& cursor, std::string_view key, uint64_t count) {
  KAPITSA_TRY(cursor.check_count(count, sizeof(T), value_of(key)));
  std::vector<Wide> values(static_cast<size_t>(count));
  for (Wide& wide : values) {
    T value{};
    KAPITSA_TRY(cursor.read(value, "an array element"));
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value > uint64_t{std::numeric_limits<int64_t>::max()})
        return cursor.error(ErrorCode::unsupported,
                            fmt::format("expected integers below 2^63 in the array of {}, found {}",
                                        value_of(key), value));
    }
    wide = static_cast<Wide>(value);  // NOLINT(bugprone-signed-char-misuse): i8 is a number here
  }
  return Value(std::move(values));
}

Result<Value> read_booleans(ByteCursor& cursor, std::string_view key, uint64_t count) {
  KAPITSA_TRY(cursor.check_count(count, 1, value_of(key)));
  std::vector<bool> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    KAPITSA_ASSIGN(values[i], read_boolean(cursor, key));
  }
  return Value(std::move(values));
}

Result<Value> read_strings(ByteCursor& cursor, std::string_view key, uint64_t count) {
  KAPITSA_TRY(cursor.check_count(count, sizeof(uint64_t), value_of(key)));
  StringList list;
  list.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    KAPITSA_ASSIGN(const std::string_view text, cursor.read_string("a string of an array"));
    list.push_back(text);
  }
  return Value(std::move(list));
}

Result<Value> read_array(ByteCursor& cursor, std::string_view key) {
  uint32_t type = 0;
  uint64_t count = 0;
  KAPITSA_TRY(cursor.read(type, "the element type of an array"));
  KAPITSA_TRY(cursor.read(count, "the length of an array"));
  switch (static_cast<ValueType>(type)) {
  case ValueType::u8: return read_numbers<uint8_t, int64_t>(cursor, key, count);
  case ValueType::i8: return read_numbers<int8_t, int64_t>(cursor, key, count);
  case ValueType::u16: return read_numbers<uint16_t, int64_t>(cursor, key, count);
  case ValueType::i16: return read_numbers<int16_t, int64_t>(cursor, key, count);
  case ValueType::u32: return read_numbers<uint32_t, int64_t>(cursor, key, count);
  case ValueType::i32: return read_numbers<int32_t, int64_t>(cursor, key, count);
  case ValueType::u64: return read_numbers<uint64_t, int64_t>(cursor, key, count);
  case ValueType::i64: return read_numbers<int64_t, int64_t>(cursor, key, count);
  case ValueType::f32: return read_numbers<float, double>(cursor, key, count);
  case ValueType::f64: return read_numbers<double, double>(cursor, key, count);
  case ValueType::boolean: return read_booleans(cursor, key, count);
  case ValueType::string: return read_strings(cursor, key, count);
  case ValueType::array:
    return cursor.error(
        ErrorCode::unsupported,
        fmt::format("expected numbers or strings in the array of {}, found arrays", value_of(key)));
  }
  return unknown_type(cursor, key, type);
}

}  // namespace

Result<Value> read_gguf_value(ByteCursor& cursor, std::string_view key) {
  uint32_t type = 0;
  KAPITSA_TRY(cursor.read(type, "the type of a metadata value"));
  switch (static_cast<ValueType>(type)) {
  case ValueType::u8: return read_scalar<uint8_t>(cursor, key);
  case ValueType::i8: return read_scalar<int8_t>(cursor, key);
  case ValueType::u16: return read_scalar<uint16_t>(cursor, key);
  case ValueType::i16: return read_scalar<int16_t>(cursor, key);
  case ValueType::u32: return read_scalar<uint32_t>(cursor, key);
  case ValueType::i32: return read_scalar<int32_t>(cursor, key);
  case ValueType::u64: return read_scalar<uint64_t>(cursor, key);
  case ValueType::i64: return read_scalar<int64_t>(cursor, key);
  case ValueType::f32: return read_scalar<float>(cursor, key);
  case ValueType::f64: return read_scalar<double>(cursor, key);
  case ValueType::boolean: {
    KAPITSA_ASSIGN(const bool value, read_boolean(cursor, key));
    return Value(value);
  }
  case ValueType::string: {
    KAPITSA_ASSIGN(const std::string_view text, cursor.read_string(value_of(key)));
    return Value(std::string(text));
  }
  case ValueType::array: return read_array(cursor, key);
  }
  return unknown_type(cursor, key, type);
}

}  // namespace kapitsa::weights
