// A model folder as Hugging Face and MLX lay it out: config.json, an optional
// generation_config.json, and safetensors. The tokenizer's files belong to text/.
#pragma once

#include "weights/checkpoint.h"
#include "weights/mlx_codec.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::weights {

// Metadata: the keys of config.json joined with '.' (text_config.hidden_size), and those of
// generation_config.json below `generation_config.`. Arrays of one kind of scalar are one value;
// the items of any other array have keys of their own (experts.0.name). Infinity, which Python
// writes, is read as 1.79e308. The format is mlx when config.json has `quantization` or the weights
// say so in their header.
Result<Checkpoint> read_hf(const std::filesystem::path& folder);

// Adds the keys of one JSON text to the metadata. For read_hf and its tests.
Status add_json_metadata(std::string_view text, const std::string& file, std::string_view prefix,
                         Checkpoint& checkpoint);

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
