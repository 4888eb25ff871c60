// What the names of model files say: shards, types of quantisation, whether a file is a model at
// all. Looks at names only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::hub {

std::string upper_case(std::string_view text);  // ASCII
std::string_view base_name(std::string_view path);

// "-00002-of-00003" before the extension of a .gguf or .safetensors file.
struct Shard {
  std::string stem;  // what comes before
  int index = 0;     // from 1
  int count = 0;
};
std::optional<Shard> parse_shard(std::string_view file_name);

// A .gguf file that is not a vision projector or an importance matrix.
bool is_gguf_name(std::string_view file_name);

// The name without shard number and ".gguf".
std::string gguf_stem(std::string_view file_name);

// "Q4_K_M" of "Some-Model-7B.Q4_K_M.gguf"; empty when the name does not say.
std::string quantisation_in(std::string_view file_name);

}  // namespace kapitsa::hub
