// The JSON parts of a safetensors model: the header of a file and the weight map of an index.
// Checks types and shapes; whether the data fits the file is for safetensors.cpp.
#pragma once

#include "weights/checkpoint.h"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::weights {

struct SafetensorsHeader {
  struct Entry {
    Tensor tensor;  // without data
    // The place of the data after the header, with begin <= end and as many bytes as the shape
    // needs.
    uint64_t begin = 0, end = 0;
  };
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// `file` is for errors only.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, const std::string& file);

// Tensor name to file name. A file name with a folder in it is refused: an index must not reach
// outside its own.
Result<std::map<std::string, std::string>> parse_weight_map(std::string_view text,
                                                            const std::string& file);

}  // namespace kapitsa::weights
