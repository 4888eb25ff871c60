// Places the tensors of a header inside their file, and joins shards. As strict as the format: the
// data section is the tensors, one after another, and nothing else.
#include "weights/safetensors.h"

#include "weights/byte_cursor.h"
#include "weights/describe.h"
#include "weights/file_kind.h"
#include "weights/safetensors_json.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace kapitsa::weights {
namespace {

struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

Result<Parts> split(std::span<const std::byte> bytes, const std::string& file) {
  ByteCursor cursor(bytes, file, std::numeric_limits<size_t>::max());
  uint64_t header_bytes = 0;
  const Status length = cursor.read(header_bytes, "the header length");
  if (!length || cursor.remaining() == 0 || bytes[8] != std::byte{'{'})
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: offset 0: expected a safetensors header, found {}", file,
                             guess_file_kind(bytes))};
  KAPITSA_ASSIGN(const auto header, cursor.read_bytes(header_bytes, "the header"));
  return Parts{{reinterpret_cast<const char*>(header.data()), header.size()},
               bytes.subspan(cursor.offset())};
}

// Every byte of the data belongs to one tensor. What a file lacks at its end is told elsewhere.
Status check_coverage(const SafetensorsHeader& header, size_t data_bytes, const std::string& file) {
  std::vector<const SafetensorsHeader::Entry*> order;
  order.reserve(header.entries.size());
  for (const auto& entry : header.entries)
    order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->begin < b->begin; });
  uint64_t covered = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i]->begin > covered && covered < data_bytes)
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: tensor {}: expected its data at {} where the data before ends, "
                               "found it at {}",
                               file, quote(order[i]->tensor.name), covered, order[i]->begin)};
    covered = order[i]->end;
    if (i == 0) continue;
    if (order[i - 1]->end > order[i]->begin)
      return Error{
          ErrorCode::corrupt_file,
          fmt::format("{}: tensor {}: expected no overlap with another tensor, found bytes "
                      "of {}",
                      file, quote(order[i]->tensor.name), quote(order[i - 1]->tensor.name))};
  }
  if (covered < data_bytes)
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected {} bytes of data as the header says, found {} more",
                             file, covered, data_bytes - covered)};
  return {};
}

Status add_index(const std::filesystem::path& index, Checkpoint& checkpoint) {
  const std::string file = index.string();
  KAPITSA_ASSIGN(const std::string text, read_text_file(index));
  KAPITSA_ASSIGN(const auto weight_map, parse_weight_map(text, file));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map)
    shards.insert(shard);
  for (const std::string& shard : shards)
    KAPITSA_TRY(add_safetensors(index.parent_path() / shard, checkpoint));
  for (const auto& [tensor, shard] : weight_map) {
    if (checkpoint.find(tensor) == nullptr)
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: tensor {}: expected it in {}, found no such tensor", file,
                               quote(tensor), quote(shard))};
  }
  return {};
}

}  // namespace

Status add_safetensors(std::span<const std::byte> bytes, const std::string& name,
                       Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const Parts parts, split(bytes, name));
  KAPITSA_ASSIGN(SafetensorsHeader header, parse_safetensors_header(parts.header, name));
  KAPITSA_TRY(check_coverage(header, parts.data.size(), name));
  const size_t data_begin = bytes.size() - parts.data.size();
  for (auto& [tensor, begin, end] : header.entries) {
    const std::string tensor_name = quote(tensor.name);
    if (end > parts.data.size())
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: tensor {}: expected its data to end within the {} bytes of the "
                               "file, found the end {} (truncated download?)",
                               name, tensor_name, bytes.size(), data_begin + end)};
    tensor.data = parts.data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    if (!checkpoint.add(std::move(tensor)))
      return Error{ErrorCode::corrupt_file,
                   fmt::format("{}: expected each tensor in one file, found {} in an earlier one "
                               "too",
                               name, tensor_name)};
  }
  for (auto& [key, value] : header.metadata)
    checkpoint.set("__metadata__." + key, std::move(value));
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
