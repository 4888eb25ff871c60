// Reads GGUF, versions 2 and 3, little endian, one file or the shards of a split one. Checks all
// that the header claims (counts, lengths, types, dimensions, offsets, overlaps) against the file,
// so that what comes out can be used without another check. Tensor data is not looked at.
#pragma once

#include "weights/checkpoint.h"

#include <filesystem>
#include <span>
#include <string>

namespace kapitsa::weights {

// Maps the file. Any shard, NAME-00002-of-00003.gguf, opens the whole model; the metadata is that
// of the first shard.
Result<Checkpoint> read_gguf(const std::filesystem::path& path);

// The same for one unsplit file in memory. `name` is what errors call it; `bytes` must outlive the
// checkpoint.
Result<Checkpoint> read_gguf(std::span<const std::byte> bytes, std::string name);

}  // namespace kapitsa::weights
