// Format: https://github.com/huggingface/safetensors#format.
#include "weights/safetensors_json.h"

#include "base/json.h"
#include "weights/describe.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <optional>

namespace kapitsa::weights {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDimensions = 8;
constexpr JsonLimits kHeaderLimits = {.max_depth = 4,  // header, tensor, array; one spare
                                      .max_bytes =
                                          100'000'000,  // the limit of the reference implementation
                                      .unique_keys = true};

std::optional<DType> to_dtype(std::string_view name) {
  struct Row {
    std::string_view name;
    DType dtype;
  };
  // FP8 numbers and their E8M0 scales have no arithmetic of their own here: raw bytes.
  static constexpr Row kRows[] = {
      {"F32", DType::f32},    {"F16", DType::f16},    {"BF16", DType::bf16}, {"F64", DType::f64},
      {"I8", DType::i8},      {"I16", DType::i16},    {"I32", DType::i32},   {"I64", DType::i64},
      {"U8", DType::u8},      {"U32", DType::u32},    {"BOOL", DType::u8},   {"F8_E4M3", DType::u8},
      {"F8_E5M2", DType::u8}, {"F8_E8M0", DType::u8},
  };
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

// One tensor of the header.
class EntryReader {
public:
  EntryReader(const std::string& file, std::string_view name, const json::object& fields)
      : file_(file), name_(name), fields_(fields) {}

  Result<SafetensorsHeader::Entry> read() const {
    SafetensorsHeader::Entry entry;
    entry.tensor.name = name_;
    KAPITSA_ASSIGN(entry.tensor.dtype, dtype());
    KAPITSA_ASSIGN(entry.tensor.shape, shape());
    KAPITSA_ASSIGN(const std::vector<int64_t> offsets, integers("data_offsets", 2));
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      return expected("'data_offsets' as a begin and an end", "another value");
    entry.begin = static_cast<uint64_t>(offsets[0]);
    entry.end = static_cast<uint64_t>(offsets[1]);
    const auto bytes = dtype_bytes(entry.tensor.dtype, entry.tensor.n_elements());
    if (!bytes || *bytes != offsets[1] - offsets[0])
      return expected(bytes ? fmt::format("{} bytes of data for its shape and type", *bytes)
                            : "less than 2^63 bytes of data for its shape and type",
                      fmt::format("{}", offsets[1] - offsets[0]));
    return entry;
  }

private:
  Error expected(std::string_view what, std::string_view found,
                 ErrorCode code = ErrorCode::corrupt_file) const {
    return {code,
            fmt::format("{}: tensor {}: expected {}, found {}", file_, quote(name_), what, found)};
  }

  Result<DType> dtype() const {
    const json::value* field = fields_.if_contains("dtype");
    const json::string* text = field == nullptr ? nullptr : field->if_string();
    if (text == nullptr) return expected("a string 'dtype'", "none");
    if (const auto known = to_dtype(*text)) return *known;
    return expected("a type that this build reads", quote(*text), ErrorCode::unsupported);
  }

  // Integers in 0..2^63-1.
  Result<std::vector<int64_t>> integers(std::string_view key, size_t max_count) const {
    const json::value* field = fields_.if_contains(key);
    const json::array* array = field == nullptr ? nullptr : field->if_array();
    const std::string what =
        fmt::format("'{}' as at most {} integers of at least 0", key, max_count);
    if (array == nullptr || array->size() > max_count)
      return expected(what, array == nullptr ? "none" : "more");
    std::vector<int64_t> values;
    for (const json::value& item : *array) {
      const int64_t* value = item.if_int64();
      if (value == nullptr || *value < 0) return expected(what, "another value");
      values.push_back(*value);
    }
    return values;
  }

  Result<std::vector<int64_t>> shape() const {
    KAPITSA_ASSIGN(std::vector<int64_t> shape, integers("shape", kMaxDimensions));
    int64_t n_elements = 1;
    for (const int64_t dimension : shape) {
      if (dimension == 0) return expected("dimensions of at least 1", "0", ErrorCode::unsupported);
      if (__builtin_mul_overflow(n_elements, dimension, &n_elements))
        return expected("less than 2^63 values", "more");
    }
    return shape;
  }

  const std::string& file_;
  std::string_view name_;
  const json::object& fields_;
};

Error expected_object(std::string_view file, std::string_view what) {
  return {ErrorCode::corrupt_file,
          fmt::format("{}: expected {} as a JSON object, found another value", file, what)};
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         std::filesystem::path(name).filename() == name;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, const std::string& file) {
  KAPITSA_ASSIGN(const json::value value, parse_json(text, file + ": header", kHeaderLimits));
  const json::object* root = value.if_object();
  if (root == nullptr) return expected_object(file, "the header");
  SafetensorsHeader header;
  for (const auto& [name, item] : *root) {
    const json::object* fields = item.if_object();
    if (fields == nullptr)
      return expected_object(file, fmt::format("the description of tensor {}", quote(name)));
    if (name == "__metadata__") {
      for (const auto& [key, entry] : *fields)
        if (const json::string* string = entry.if_string()) header.metadata.emplace(key, *string);
      continue;
    }
    KAPITSA_ASSIGN(SafetensorsHeader::Entry entry, EntryReader(file, name, *fields).read());
    header.entries.push_back(std::move(entry));
  }
  return header;
}

Result<std::map<std::string, std::string>> parse_weight_map(std::string_view text,
                                                            const std::string& file) {
  KAPITSA_ASSIGN(const json::value value, parse_json(text, file, {.unique_keys = true}));
  const json::object* root = value.if_object();
  const json::value* field = root == nullptr ? nullptr : root->if_contains("weight_map");
  const json::object* entries = field == nullptr ? nullptr : field->if_object();
  if (entries == nullptr) return expected_object(file, "'weight_map'");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : *entries) {
    const json::string* text_of_shard = shard.if_string();
    std::string name(text_of_shard == nullptr ? "" : std::string_view(*text_of_shard));
    if (!is_plain_file_name(name))
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: tensor {}: expected the name of a file in the same folder, "
                               "found {}",
                               file, quote(tensor),
                               text_of_shard == nullptr ? "another value" : quote(name))};
    weight_map.emplace(tensor, std::move(name));
  }
  return weight_map;
}

}  // namespace kapitsa::weights
