// A model folder as Hugging Face and MLX lay it out: config.json, an optional
// generation_config.json, and safetensors. The tokenizer's files belong to text/.
#pragma once

#include "weights/checkpoint.h"
#include "weights/mlx_codec.h"

#include <filesystem>
#include <optional>
#include <string_view>

namespace kapitsa::weights {

// Metadata as in json_metadata.h: the keys of config.json, and those of generation_config.json
// below `generation_config.`. The format is mlx when config.json has `quantization` or the weights
// say so in their header.
Result<Checkpoint> read_hf(const std::filesystem::path& folder);

// The tensors of a quantised MLX module, whose shapes fit each other and the settings.
struct MlxModule {
  MlxQuant quant;
  const Tensor* weight = nullptr;  // u32 (..., out, in * bits / 32)
  const Tensor* scales = nullptr;  // (..., out, in / group); bf16, f16 or f32, else u8
  const Tensor* biases = nullptr;  // as scales; affine only
};

// The module at `path` (model.layers.0.mlp.up_proj), or nullopt when it is not quantised, that is,
// has no `path.scales`. Settings of the path override those of the whole model.
Result<std::optional<MlxModule>> find_mlx_module(const Checkpoint& checkpoint,
                                                 std::string_view path);

}  // namespace kapitsa::weights
