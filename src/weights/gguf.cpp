// One forward walk over the header of each file; no count or length is believed before it has been
// compared with the bytes that are left. Then every tensor is placed inside the file and checked
// against its neighbours. Layout: GGUF specification (docs/gguf.md in the ggml repository).
#include "weights/gguf.h"

#include "weights/byte_cursor.h"
#include "weights/describe.h"
#include "weights/file_kind.h"
#include "weights/ggml_types.h"
#include "weights/gguf_value.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace kapitsa::weights {
namespace {

// Bounds what a hostile header can make us allocate; the largest real ones are below 32 MiB.
constexpr size_t kMaxHeaderBytes = size_t{256} << 20;
constexpr uint32_t kMaxDimensions = 4;
constexpr int64_t kMaxAlignment = int64_t{1} << 30;
constexpr int64_t kDefaultAlignment = 32;
// The least that a metadata entry (key length, type, value) and a tensor entry (name length,
// dimension count, type, offset) take.
constexpr size_t kMinEntryBytes = 8 + 4 + 1;
constexpr size_t kMinTensorBytes = 8 + 4 + 4 + 8;

// A tensor before its data has been found in the file.
struct TensorEntry {
  Tensor tensor;
  uint64_t offset = 0;  // bytes from the start of the data section
  uint64_t bytes = 0;
};

Status read_magic_and_version(ByteCursor& cursor, std::span<const std::byte> bytes) {
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  uint32_t magic = 0;
  if (bytes.size() < sizeof magic || !cursor.read(magic, "the magic") || magic != kMagic)
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: offset 0: expected the magic 'GGUF', found {}", cursor.file(),
                             guess_file_kind(bytes))};
  uint32_t version = 0;
  KAPITSA_TRY(cursor.read(version, "the GGUF version"));
  if (version == 2 || version == 3) return {};
  const std::string expected = "expected GGUF version 2 or 3, found ";
  if (version != 0 && (version & 0xFFFF) == 0)
    return cursor.error(ErrorCode::unsupported, expected + "a big-endian file");
  return cursor.error(ErrorCode::unsupported, fmt::format("{}version {}", expected, version));
}

Status read_metadata(ByteCursor& cursor, uint64_t count, Checkpoint& checkpoint) {
  for (uint64_t i = 0; i < count; ++i) {
    KAPITSA_ASSIGN(const std::string_view key, cursor.read_string("a metadata key"));
    KAPITSA_ASSIGN(Value value, read_gguf_value(cursor, key));
    if (!checkpoint.set(std::string(key), std::move(value)))
      return cursor.error(
          ErrorCode::corrupt_file,
          fmt::format("expected each metadata key once, found {} again", quote(key)));
  }
  return {};
}

Result<DType> to_dtype(const ByteCursor& cursor, uint32_t id, std::string_view name) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id != id) continue;
    if (type.dtype) return *type.dtype;
    return cursor.error(ErrorCode::unsupported,
                        fmt::format("tensor {} has type {} ({}), which is not supported; use "
                                    "another quantisation of the model",
                                    quote(name), type.name, id));
  }
  return cursor.error(ErrorCode::unsupported,
                      fmt::format("tensor {} has the unknown type number {}", quote(name), id));
}

// Dimensions, stored innermost first, into tensor.shape, outermost first.
Status read_shape(ByteCursor& cursor, Tensor& tensor) {
  uint32_t n_dimensions = 0;
  KAPITSA_TRY(cursor.read(n_dimensions, "the number of dimensions of a tensor"));
  if (n_dimensions > kMaxDimensions)
    return cursor.error(ErrorCode::corrupt_file,
                        fmt::format("expected at most {} dimensions of tensor {}, found {}",
                                    kMaxDimensions, quote(tensor.name), n_dimensions));
  tensor.shape.resize(n_dimensions);
  int64_t n_elements = 1;
  for (size_t i = n_dimensions; i-- > 0;) {
    int64_t& dimension = tensor.shape[i];
    KAPITSA_TRY(cursor.read(dimension, "a tensor dimension"));
    if (dimension <= 0 || __builtin_mul_overflow(n_elements, dimension, &n_elements))
      return cursor.error(ErrorCode::corrupt_file,
                          fmt::format("expected positive dimensions with a product below 2^63 for "
                                      "tensor {}, found {} as dimension {} of {}",
                                      quote(tensor.name), static_cast<uint64_t>(dimension),
                                      n_dimensions - i, n_dimensions));
  }
  return {};
}

Result<TensorEntry> read_tensor_entry(ByteCursor& cursor, int64_t alignment) {
  TensorEntry entry;
  Tensor& tensor = entry.tensor;
  KAPITSA_ASSIGN(tensor.name, cursor.read_string("a tensor name"));
  KAPITSA_TRY(read_shape(cursor, tensor));
  uint32_t type = 0;
  KAPITSA_TRY(cursor.read(type, "a tensor type"));
  KAPITSA_ASSIGN(tensor.dtype, to_dtype(cursor, type, tensor.name));
  KAPITSA_TRY(cursor.read(entry.offset, "a tensor offset"));

  const DTypeInfo& info = dtype_info(tensor.dtype);
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  const std::optional<int64_t> bytes = dtype_bytes(tensor.dtype, tensor.n_elements());
  if (row % info.block_elements != 0 || !bytes)
    return cursor.error(ErrorCode::corrupt_file,
                        fmt::format("expected rows of a multiple of {} values in tensor {} of type "
                                    "{}, and less than 2^63 bytes; found rows of {}",
                                    info.block_elements, quote(tensor.name), info.name, row));
  entry.bytes = static_cast<uint64_t>(*bytes);
  if (entry.offset % static_cast<uint64_t>(alignment) != 0)
    return cursor.error(ErrorCode::corrupt_file,
                        fmt::format("expected an offset of tensor {} that is a multiple of {}, "
                                    "found {}",
                                    quote(tensor.name), alignment, entry.offset));
  return entry;
}

Result<int64_t> read_alignment(const Checkpoint& checkpoint) {
  constexpr std::string_view kKey = "general.alignment";
  KAPITSA_ASSIGN(const int64_t alignment,
                 checkpoint.integer_or(kKey, kDefaultAlignment, 1, kMaxAlignment));
  if ((alignment & (alignment - 1)) != 0)
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: key '{}': expected a power of two, found {}",
                             checkpoint.path().string(), kKey, alignment)};
  return alignment;
}

// Points every tensor to its bytes, which must lie inside the file and overlap no other tensor.
Status place_tensors(std::span<const std::byte> bytes, uint64_t data_begin,
                     std::vector<TensorEntry>& entries, const std::string& file) {
  const uint64_t available = bytes.size() - std::min<uint64_t>(data_begin, bytes.size());
  std::vector<const TensorEntry*> by_offset;
  for (TensorEntry& entry : entries) {
    if (entry.offset > available || entry.bytes > available - entry.offset)
      return Error{
          ErrorCode::corrupt_file,
          fmt::format("{}: offset {}: expected {} bytes of tensor {}, found the end of the "
                      "file at {} (truncated download?)",
                      file, data_begin + entry.offset, entry.bytes, quote(entry.tensor.name),
                      bytes.size())};
    entry.tensor.data = bytes.subspan(static_cast<size_t>(data_begin + entry.offset),
                                      static_cast<size_t>(entry.bytes));
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorEntry& before = *by_offset[i - 1];
    if (before.offset + before.bytes > by_offset[i]->offset)
      return Error{
          ErrorCode::corrupt_file,
          fmt::format("{}: offset {}: expected tensors that do not overlap, found {} inside "
                      "{}",
                      file, data_begin + by_offset[i]->offset, quote(by_offset[i]->tensor.name),
                      quote(before.tensor.name))};
  }
  return {};
}

// One file, whether a shard or the whole.
Result<Checkpoint> read_one(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  Checkpoint checkpoint(Format::gguf, path);
  ByteCursor cursor(bytes, path.string(), kMaxHeaderBytes);
  KAPITSA_TRY(read_magic_and_version(cursor, bytes));
  uint64_t n_tensors = 0;
  uint64_t n_entries = 0;
  KAPITSA_TRY(cursor.read(n_tensors, "the number of tensors"));
  KAPITSA_TRY(cursor.read(n_entries, "the number of metadata entries"));
  KAPITSA_TRY(cursor.check_count(n_entries, kMinEntryBytes, "the metadata entries"));
  KAPITSA_TRY(read_metadata(cursor, n_entries, checkpoint));
  KAPITSA_ASSIGN(const int64_t alignment, read_alignment(checkpoint));

  KAPITSA_TRY(cursor.check_count(n_tensors, kMinTensorBytes, "the tensor entries"));
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    KAPITSA_ASSIGN(TensorEntry entry, read_tensor_entry(cursor, alignment));
    entries.push_back(std::move(entry));
  }
  const uint64_t mask = static_cast<uint64_t>(alignment) - 1;
  const uint64_t data_begin = (cursor.offset() + mask) & ~mask;
  KAPITSA_TRY(place_tensors(bytes, data_begin, entries, path.string()));
  for (TensorEntry& entry : entries) {
    std::string name = entry.tensor.name;
    if (!checkpoint.add(std::move(entry.tensor)))
      return cursor.error(
          ErrorCode::corrupt_file,
          fmt::format("expected each tensor name once, found {} again", quote(name)));
  }
  return checkpoint;
}

struct MappedCheckpoint {
  MappedFile file;
  Checkpoint contents;
};

Result<MappedCheckpoint> map_one(const std::filesystem::path& path) {
  KAPITSA_ASSIGN(MappedFile file, MappedFile::open(path));
  KAPITSA_ASSIGN(Checkpoint contents, read_one(file.bytes(), path));
  return MappedCheckpoint{std::move(file), std::move(contents)};
}

constexpr std::string_view kShardSuffix = "-NNNNN-of-NNNNN.gguf";

// BASE of BASE-00002-of-00003.gguf when its count is `n_shards`.
std::optional<std::string> shard_base(const std::string& name, int64_t n_shards) {
  if (name.size() <= kShardSuffix.size()) return std::nullopt;
  const size_t base = name.size() - kShardSuffix.size();
  for (size_t i = 0; i < kShardSuffix.size(); ++i) {
    const char found = name[base + i];
    const bool fits =
        kShardSuffix[i] == 'N' ? found >= '0' && found <= '9' : found == kShardSuffix[i];
    if (!fits) return std::nullopt;
  }
  if (name.substr(base + 10, 5) != fmt::format("{:05}", n_shards)) return std::nullopt;
  return name.substr(0, base);
}

// Adds the tensors of shard `index` to `whole`.
Status add_shard(const std::filesystem::path& path, int64_t index, int64_t n_shards,
                 Checkpoint& whole) {
  KAPITSA_ASSIGN(MappedCheckpoint shard, map_one(path));
  KAPITSA_TRY(shard.contents.integer("split.no", index, index));
  KAPITSA_TRY(shard.contents.integer("split.count", n_shards, n_shards));
  if (index == 0) {
    for (const auto& [key, value] : shard.contents.metadata())
      whole.set(key, value);
  }
  for (const Tensor& tensor : shard.contents.tensors()) {
    if (!whole.add(tensor))
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: expected each tensor in one shard, found {} in an earlier one "
                               "too",
                               path.string(), quote(tensor.name))};
  }
  whole.keep(std::move(shard.file));
  return {};
}

Result<Checkpoint> read_shards(const std::filesystem::path& path, int64_t n_shards) {
  const std::optional<std::string> base = shard_base(path.filename().string(), n_shards);
  if (!base)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: expected a file name that ends in -00001-of-{:05}.gguf, because "
                             "the file is one of {} shards; found another name",
                             path.string(), n_shards, n_shards)};
  Checkpoint whole(Format::gguf, path);
  for (int64_t i = 0; i < n_shards; ++i) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}.gguf", *base, i + 1, n_shards);
    KAPITSA_TRY(add_shard(path.parent_path() / name, i, n_shards, whole));
  }
  const auto found = static_cast<int64_t>(whole.tensors().size());
  KAPITSA_ASSIGN(const int64_t expected, whole.integer_or("split.tensors.count", found, 0));
  if (expected != found)
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected {} tensors in all shards (key split.tensors.count), "
                             "found {}",
                             path.string(), expected, found)};
  return whole;
}

}  // namespace

Result<Checkpoint> read_gguf(const std::filesystem::path& path) {
  constexpr int64_t kMaxShards = 99999;  // what the five digits of a shard's name hold
  KAPITSA_ASSIGN(MappedCheckpoint one, map_one(path));
  KAPITSA_ASSIGN(const int64_t n_shards, one.contents.integer_or("split.count", 1, 0, kMaxShards));
  if (n_shards > 1) return read_shards(path, n_shards);
  one.contents.keep(std::move(one.file));
  return std::move(one.contents);
}

Result<Checkpoint> read_gguf(std::span<const std::byte> bytes, std::string name) {
  return read_one(bytes, std::filesystem::path(std::move(name)));
}

}  // namespace kapitsa::weights
