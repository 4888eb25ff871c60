// Models with the real shape of a known one and random weights: to measure speed without a
// download, here (LoadOptions::synthetic) or with another engine (a file of it).
#pragma once

#include "base/result.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa {

// Names for LoadOptions::synthetic and SyntheticFile::model.
std::vector<std::string_view> synthetic_models();

struct SyntheticFile {
  std::string model;
  int32_t n_layers = 0;  // the first n layers only; 0: all
  std::filesystem::path path;
  // Bytes written so far and in all; false stops.
  std::function<bool(int64_t done, int64_t total)> progress;
};

// Writes a GGUF file and returns its size in bytes. The file appears when it is complete.
Result<int64_t> write_synthetic(const SyntheticFile& wanted);

}  // namespace kapitsa
