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

// The tensors of a matrix that ModelOpt quantised to NVFP4: codes and scales as MLX's nvfp4, and
// one scale of the whole matrix.
struct Nvfp4Matrix {
  static constexpr MlxQuant kQuant = {.bits = 4, .group = 16, .mode = MlxMode::nvfp4};
  const Tensor* weight = nullptr;  // u8 (out, in / 2)
  const Tensor* scales = nullptr;  // e4m3 (out, in / 16)
  float scale = 1.0F;              // multiplies all values
};

// The matrix of `out` rows of `in` values whose codes are the tensor `weight`
// (model.layers.0.mlp.up_proj.weight), or nullopt when it has no scales (weight_scale). Refuses
// other formats with scales, as FP8.
Result<std::optional<Nvfp4Matrix>>
find_nvfp4_matrix(const Checkpoint& checkpoint, std::string_view weight, int64_t out, int64_t in);

// The module at `path` (model.layers.0.mlp.up_proj), or nullopt when it is not quantised, that is,
// has no `path.scales`. Settings of the path override those of the whole model.
Result<std::optional<MlxModule>> find_mlx_module(const Checkpoint& checkpoint,
                                                 std::string_view path);

}  // namespace kapitsa::weights
