// Writes a GGUF file, version 3, of a checkpoint's metadata and tensors. The data of one tensor at
// a time is asked for, so that a model larger than memory can be written.
#pragma once

#include "weights/checkpoint.h"

#include <filesystem>
#include <functional>
#include <span>

namespace kapitsa::weights {

struct GgufSource {
  const std::map<std::string, Value, std::less<>>& metadata;
  const std::deque<Tensor>& tensors;  // their `data` is not read
  // Fills the rows of a tensor.
  std::function<Status(const Tensor& tensor, std::span<std::byte> out)> data;
  // Optional: whether a tensor is all zeros. It takes no room on the disk, and `data` is not asked.
  std::function<bool(const Tensor& tensor)> is_zero;
  // Called after each tensor with the bytes written so far and in all; false stops with
  // `cancelled`.
  std::function<bool(int64_t done, int64_t total)> progress;
};

// The file appears under its name when it is complete; a part that was written is removed on
// failure. Refuses, before it writes, what the disk has no room for. Returns the size in bytes. A
// symbolic link stays; a device, a pipe or a folder is refused.
Result<int64_t> write_gguf(const std::filesystem::path& path, const GgufSource& source);

}  // namespace kapitsa::weights
