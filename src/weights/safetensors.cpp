// Layout: https://github.com/huggingface/safetensors#format. Stricter than it where that catches
// damage early (overlaps), looser where it does not matter (gaps between tensors).
#include "weights/safetensors.h"

#include "base/json.h"
#include "weights/byte_cursor.h"
#include "weights/describe.h"
#include "weights/file_kind.h"

#include <boost/json.hpp>

#include <algorithm>
#include <optional>
#include <set>

namespace kapitsa::weights {
namespace {

namespace json = boost::json;

constexpr size_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxDimensions = 8;
constexpr size_t kHeaderDepth = 4;  // header, tensor, array; one spare

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

// The header of one file while it is turned into tensors.
class HeaderReader {
public:
  HeaderReader(std::string file, std::span<const std::byte> data, size_t data_begin)
      : file_(std::move(file)), data_(data), data_begin_(data_begin) {}

  Result<Tensor> tensor(std::string_view name, const json::value& entry) const {
    Tensor tensor;
    tensor.name = name;
    const json::object* fields = entry.if_object();
    if (fields == nullptr) return expected(name, "an object that describes it", "another value");
    KAPITSA_ASSIGN(tensor.dtype, dtype(name, *fields));
    KAPITSA_ASSIGN(tensor.shape, shape(name, *fields));
    KAPITSA_ASSIGN(tensor.data, data(tensor, *fields));
    return tensor;
  }

  // Tensors may touch but not share bytes.
  Status check_overlaps(const std::vector<Tensor>& tensors) const {
    std::vector<const Tensor*> order;
    for (const Tensor& tensor : tensors)
      order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->data.data() < b->data.data(); });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->data.data() + order[i - 1]->data.size() > order[i]->data.data())
        return expected(order[i]->name, "no overlap with another tensor",
                        "bytes of " + quote(order[i - 1]->name));
    }
    return {};
  }

private:
  Error expected(std::string_view name, std::string_view what, std::string_view found,
                 ErrorCode code = ErrorCode::corrupt_file) const {
    return {code,
            fmt::format("{}: tensor {}: expected {}, found {}", file_, quote(name), what, found)};
  }

  Result<DType> dtype(std::string_view name, const json::object& fields) const {
    const json::value* field = fields.if_contains("dtype");
    const json::string* text = field == nullptr ? nullptr : field->if_string();
    if (text == nullptr) return expected(name, "a string 'dtype'", "none");
    if (const auto known = to_dtype(*text)) return *known;
    return expected(name, "a type that this build reads", quote(*text), ErrorCode::unsupported);
  }

  // Integers in 0..2^63-1.
  Result<std::vector<int64_t>> integers(std::string_view name, const json::object& fields,
                                        std::string_view key, size_t max_count) const {
    const json::value* field = fields.if_contains(key);
    const json::array* array = field == nullptr ? nullptr : field->if_array();
    const std::string what =
        fmt::format("'{}' as at most {} integers of at least 0", key, max_count);
    if (array == nullptr || array->size() > max_count)
      return expected(name, what, array == nullptr ? "none" : "more");
    std::vector<int64_t> values;
    for (const json::value& item : *array) {
      const int64_t* value = item.if_int64();
      if (value == nullptr || *value < 0) return expected(name, what, "another value");
      values.push_back(*value);
    }
    return values;
  }

  Result<std::vector<int64_t>> shape(std::string_view name, const json::object& fields) const {
    KAPITSA_ASSIGN(std::vector<int64_t> shape, integers(name, fields, "shape", kMaxDimensions));
    int64_t n_elements = 1;
    for (const int64_t dimension : shape) {
      if (dimension == 0)
        return expected(name, "dimensions of at least 1", "0", ErrorCode::unsupported);
      if (__builtin_mul_overflow(n_elements, dimension, &n_elements))
        return expected(name, "less than 2^63 values", "more");
    }
    return shape;
  }

  Result<std::span<const std::byte>> data(const Tensor& tensor, const json::object& fields) const {
    KAPITSA_ASSIGN(const std::vector<int64_t> offsets,
                   integers(tensor.name, fields, "data_offsets", 2));
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      return expected(tensor.name, "'data_offsets' as a begin and an end", "another value");
    const auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (static_cast<uint64_t>(end) > data_.size())
      return expected(tensor.name,
                      fmt::format("its data to end within the {} bytes of the file",
                                  data_begin_ + data_.size()),
                      fmt::format("the end {} (truncated download?)",
                                  data_begin_ + static_cast<uint64_t>(end)));
    const auto bytes = dtype_bytes(tensor.dtype, tensor.n_elements());
    if (!bytes || *bytes != end - begin)
      return expected(tensor.name,
                      fmt::format("{} bytes of data for its shape and type", bytes.value_or(-1)),
                      fmt::format("{}", end - begin));
    return data_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  std::string file_;
  std::span<const std::byte> data_;
  size_t data_begin_;
};

struct RawHeader {
  json::object json;
  size_t data_begin = 0;
};

Result<RawHeader> read_header(std::span<const std::byte> bytes, const std::string& file) {
  ByteCursor cursor(bytes, file, sizeof(uint64_t) + kMaxHeaderBytes);
  uint64_t header_bytes = 0;
  const Status length = cursor.read(header_bytes, "the header length");
  const bool plausible = length.ok() && cursor.remaining() > 0 && bytes[8] == std::byte{'{'};
  if (!plausible)
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: offset 0: expected a safetensors header, found {}", file,
                             guess_file_kind(bytes))};
  KAPITSA_ASSIGN(const auto header, cursor.read_bytes(header_bytes, "the header"));
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  KAPITSA_ASSIGN(json::value value,
                 parse_json(text, file + ": header",
                            {.max_depth = kHeaderDepth, .max_bytes = kMaxHeaderBytes}));
  return RawHeader{std::move(value.as_object()), cursor.offset()};
}

void set_metadata(const json::value& metadata, Checkpoint& checkpoint) {
  const json::object* entries = metadata.if_object();
  if (entries == nullptr) return;
  for (const auto& [key, value] : *entries) {
    if (const json::string* text = value.if_string())
      checkpoint.set("__metadata__." + std::string(key), std::string(*text));
  }
}

// The file names in the weight map of an index, each once. A name with a folder is refused: an
// index must not reach outside its own.
Result<std::set<std::string>> shard_names(const json::object& weight_map, const std::string& file) {
  std::set<std::string> names;
  for (const auto& [tensor, shard] : weight_map) {
    const json::string* name = shard.if_string();
    if (name == nullptr || name->empty() ||
        std::filesystem::path(std::string_view(*name)).filename() != std::string_view(*name) ||
        *name == ".." || *name == ".")
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: tensor {}: expected the name of a file in the same folder, "
                               "found {}",
                               file, quote(tensor),
                               name == nullptr ? "another value" : quote(*name))};
    names.emplace(*name);
  }
  return names;
}

Status add_index(const std::filesystem::path& index, Checkpoint& checkpoint) {
  const std::string file = index.string();
  KAPITSA_ASSIGN(const std::string text, read_text_file(index));
  KAPITSA_ASSIGN(const json::value value, parse_json(text, file));
  const json::object* root = value.if_object();
  const json::value* field = root == nullptr ? nullptr : root->if_contains("weight_map");
  const json::object* weight_map = field == nullptr ? nullptr : field->if_object();
  if (weight_map == nullptr)
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected an object 'weight_map', found none", file)};
  KAPITSA_ASSIGN(const std::set<std::string> names, shard_names(*weight_map, file));
  for (const std::string& name : names)
    KAPITSA_TRY(add_safetensors(index.parent_path() / name, checkpoint));
  for (const auto& [tensor, shard] : *weight_map) {
    if (checkpoint.find(tensor) == nullptr)
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: tensor {}: expected it in {}, found no such tensor", file,
                               quote(tensor), quote(shard.get_string()))};
  }
  return {};
}

}  // namespace

Status add_safetensors(std::span<const std::byte> bytes, const std::string& name,
                       Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const RawHeader header, read_header(bytes, name));
  const HeaderReader reader(name, bytes.subspan(header.data_begin), header.data_begin);
  std::vector<Tensor> tensors;
  for (const auto& [key, value] : header.json) {
    if (key == "__metadata__") {
      set_metadata(value, checkpoint);
      continue;
    }
    KAPITSA_ASSIGN(Tensor tensor, reader.tensor(key, value));
    tensors.push_back(std::move(tensor));
  }
  KAPITSA_TRY(reader.check_overlaps(tensors));
  for (Tensor& tensor : tensors) {
    std::string tensor_name = tensor.name;
    if (!checkpoint.add(std::move(tensor)))
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: expected each tensor in one file, found {} in an earlier one "
                               "too",
                               name, quote(tensor_name))};
  }
  return {};
}

Status add_safetensors(const std::filesystem::path& path, Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(MappedFile file, MappedFile::open(path));
  KAPITSA_TRY(add_safetensors(file.bytes(), path.string(), checkpoint));
  checkpoint.keep(std::move(file));
  return {};
}

Status add_safetensors_folder(const std::filesystem::path& folder, Checkpoint& checkpoint) {
  const auto index = folder / "model.safetensors.index.json";
  const auto single = folder / "model.safetensors";
  std::error_code ignored;
  if (std::filesystem::exists(index, ignored)) return add_index(index, checkpoint);
  if (std::filesystem::exists(single, ignored)) return add_safetensors(single, checkpoint);
  return Error{ErrorCode::not_found,
               fmt::format("{}: expected model.safetensors or model.safetensors.index.json, found "
                           "neither",
                           folder.string())};
}

}  // namespace kapitsa::weights
