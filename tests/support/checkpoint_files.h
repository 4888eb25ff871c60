// Reads test checkpoints and expected tensors from tests/golden/data.
#pragma once

#include "weights/checkpoint.h"

#include <filesystem>
#include <string>
#include <vector>

namespace kapitsa::test {

// A file or folder of any format; aborts the test program when it cannot be read.
weights::Checkpoint read_test_checkpoint(const std::filesystem::path& path);
// tests/golden/data/<name>.
std::filesystem::path golden_path(const std::string& name);

std::vector<float> floats(const weights::Checkpoint& file, const std::string& tensor);
std::vector<int32_t> integers(const weights::Checkpoint& file, const std::string& tensor);

// rms(found - expected) / rms(expected).
double relative_error(std::span<const float> found, std::span<const float> expected);

}  // namespace kapitsa::test
