// Reads safetensors files: an eight-byte length, a JSON header, then the data. Checks shapes, types
// and offsets of the header against the file. Types that only make sense together with others (FP8
// scales, packed FP4 bytes) come out as raw u8.
#pragma once

#include "weights/checkpoint.h"

#include <filesystem>
#include <span>
#include <string>

namespace kapitsa::weights {

// Adds the tensors of one file to `checkpoint` and keeps the mapping there. The strings of the
// header's `__metadata__` become keys `__metadata__.NAME`, unless an earlier file set them.
Status add_safetensors(const std::filesystem::path& path, Checkpoint& checkpoint);

// The same for a file in memory. `name` is what errors call it; `bytes` must outlive the
// checkpoint.
Status add_safetensors(std::span<const std::byte> bytes, const std::string& name,
                       Checkpoint& checkpoint);

// The shards of FOLDER/model.safetensors.index.json, or FOLDER/model.safetensors.
Status add_safetensors_folder(const std::filesystem::path& folder, Checkpoint& checkpoint);

}  // namespace kapitsa::weights
