// Opens a model by path, whatever its format.
#pragma once

#include "weights/checkpoint.h"

#include <filesystem>

namespace kapitsa::weights {

// A GGUF file (any shard of a split one), or a folder: with config.json, a Hugging Face or MLX
// model; without, a folder that holds exactly one GGUF model. A .safetensors file stands for its
// folder.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

}  // namespace kapitsa::weights
