// Reads a model folder, and looks up how MLX quantised a module of it. MLX settings: mlx-lm,
// utils.py, and nn.quantize of MLX.
#include "weights/hf.h"

#include "weights/codec.h"
#include "weights/describe.h"
#include "weights/json_metadata.h"
#include "weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace kapitsa::weights {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{4} << 20;

Status add_json_file(const std::filesystem::path& path, std::string_view prefix,
                     Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  return add_json_metadata(text, path.string(), prefix, checkpoint);
}

bool says_mlx(const Checkpoint& checkpoint) {
  const Result<std::string> format = checkpoint.string("__metadata__.format");
  return checkpoint.has("quantization.bits") || checkpoint.has("quantization.mode") ||
         (format && *format == "mlx");
}

Result<MlxMode> read_mode(const Checkpoint& checkpoint, const std::string& prefix) {
  const std::string key = prefix + ".mode";
  KAPITSA_ASSIGN(const std::string name, checkpoint.string_or(key, "affine"));
  for (const MlxMode mode : {MlxMode::affine, MlxMode::mxfp4, MlxMode::mxfp8, MlxMode::nvfp4})
    if (name == to_string(mode)) return mode;
  return Error{ErrorCode::unsupported,
               fmt::format("{}: key '{}': expected affine, mxfp4, mxfp8 or nvfp4, found {}",
                           checkpoint.path().string(), key, quote(name))};
}

// The settings under `prefix`; what they leave out has the default of their mode.
Result<MlxQuant> read_quant(const Checkpoint& checkpoint, const std::string& prefix) {
  MlxQuant quant;
  KAPITSA_ASSIGN(quant.mode, read_mode(checkpoint, prefix));
  const bool affine = quant.mode == MlxMode::affine;
  const int default_group = affine ? 64 : quant.mode == MlxMode::nvfp4 ? 16 : 32;
  const int default_bits = quant.mode == MlxMode::mxfp8 ? 8 : 4;
  KAPITSA_ASSIGN(const int64_t bits, checkpoint.integer_or(prefix + ".bits", default_bits, 1, 32));
  KAPITSA_ASSIGN(const int64_t group,
                 checkpoint.integer_or(prefix + ".group_size", default_group, 1, 4096));
  quant.bits = static_cast<int>(bits);
  quant.group = static_cast<int>(group);
  if (!is_valid(quant))
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: key '{}': expected a known quantisation, found {} with {} bits "
                             "and groups of {}",
                             checkpoint.path().string(), prefix, to_string(quant.mode), quant.bits,
                             quant.group)};
  return quant;
}

bool is_plain_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Why the tensors do not fit each other, or an empty string.
std::string misfit(const MlxModule& module) {
  const auto& [quant, weight, scales, biases] = module;
  const bool affine = quant.mode == MlxMode::affine;
  if (weight == nullptr || weight->dtype != DType::u32) return "expected a weight of type u32";
  if (affine != (biases != nullptr))
    return affine ? "expected biases, found none" : "expected no biases, found some";
  if (affine ? !is_plain_float(scales->dtype) : scales->dtype != DType::u8)
    return affine ? "expected scales of type f32, f16 or bf16" : "expected scales of type u8";
  if (affine && (biases->dtype != scales->dtype || biases->shape != scales->shape))
    return "expected biases of the type and shape of the scales";
  if (weight->shape.empty() || weight->shape.size() != scales->shape.size())
    return "expected weight and scales of the same number of dimensions";
  if (!std::equal(weight->shape.begin(), weight->shape.end() - 1, scales->shape.begin()))
    return "expected weight and scales of the same number of rows";
  // Sizes in bits of a row, in 128-bit products because both factors come from a file.
  const auto by_weight = static_cast<__int128>(weight->shape.back()) * 32;
  const auto by_scales = static_cast<__int128>(scales->shape.back()) * quant.group * quant.bits;
  if (by_weight != by_scales)
    return fmt::format(
        "expected rows of {} words for {} groups of {} values with {} bits, found {}",
        static_cast<int64_t>(by_scales / 32), scales->shape.back(), quant.group, quant.bits,
        weight->shape.back());
  return {};
}

std::string shape_text(const Tensor* tensor) {
  return tensor == nullptr ? "none" : fmt::format("({})", fmt::join(tensor->shape, ", "));
}

}  // namespace

Result<Checkpoint> read_hf(const std::filesystem::path& folder) {
  Checkpoint checkpoint(Format::hf, folder);
  KAPITSA_TRY(add_json_file(folder / "config.json", "", checkpoint));
  const auto generation = folder / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored))
    KAPITSA_TRY(add_json_file(generation, "generation_config", checkpoint));
  KAPITSA_TRY(add_safetensors_folder(folder, checkpoint));
  if (says_mlx(checkpoint)) checkpoint.set_format(Format::mlx);
  return checkpoint;
}

Result<std::optional<Nvfp4Matrix>>
find_nvfp4_matrix(const Checkpoint& checkpoint, std::string_view weight, int64_t out, int64_t in) {
  const std::string scales_name = fmt::format("{}_scale", weight);
  const std::string scale_name = fmt::format("{}_scale_2", weight);
  Nvfp4Matrix matrix;
  matrix.scales = checkpoint.find(scales_name);
  if (matrix.scales == nullptr) return std::optional<Nvfp4Matrix>();
  matrix.weight = checkpoint.find(weight);
  const Tensor* scale = checkpoint.find(scale_name);
  const auto refuse = [&](ErrorCode code, const std::string& tensor, const std::string& what) {
    return Error{code,
                 fmt::format("{}: tensor {}: {}", checkpoint.path().string(), quote(tensor), what)};
  };
  if (scale == nullptr)
    return refuse(ErrorCode::unsupported, scales_name,
                  "weights with scales are supported as NVFP4 of ModelOpt, expected a tensor "
                  "weight_scale_2 beside it, found none (FP8?)");
  const auto is_codes = [](const Tensor* tensor, int64_t rows, int64_t bytes) {
    return tensor != nullptr && tensor->dtype == DType::u8 &&
           tensor->shape == std::vector<int64_t>{rows, bytes};
  };
  if (in % Nvfp4Matrix::kQuant.group != 0 || !is_codes(matrix.weight, out, in / 2))
    return refuse(ErrorCode::corrupt_file, std::string(weight),
                  fmt::format("expected NVFP4 codes u8 of shape ({}, {}), found {}", out, in / 2,
                              shape_text(matrix.weight)));
  if (!is_codes(matrix.scales, out, in / Nvfp4Matrix::kQuant.group))
    return refuse(ErrorCode::corrupt_file, scales_name,
                  fmt::format("expected bytes of shape ({}, {}), found {}", out,
                              in / Nvfp4Matrix::kQuant.group, shape_text(matrix.scales)));
  if (scale->dtype != DType::f32 || scale->n_elements() != 1)
    return refuse(ErrorCode::corrupt_file, scale_name, "expected one number of type f32");
  KAPITSA_TRY(dequantise(DType::f32, scale->data, {&matrix.scale, 1}));
  if (!std::isfinite(matrix.scale))
    return refuse(ErrorCode::corrupt_file, scale_name, "expected a finite number");
  return std::optional<Nvfp4Matrix>(matrix);
}

Result<std::optional<MlxModule>> find_mlx_module(const Checkpoint& checkpoint,
                                                 std::string_view path) {
  MlxModule module;
  module.scales = checkpoint.find(fmt::format("{}.scales", path));
  if (module.scales == nullptr) return std::optional<MlxModule>();
  module.weight = checkpoint.find(fmt::format("{}.weight", path));
  module.biases = checkpoint.find(fmt::format("{}.biases", path));
  std::string prefix = fmt::format("quantization.{}", path);
  if (checkpoint.find(fmt::format("{}.global_scale", path)) != nullptr)
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: module {}: global scales of nvfp4 are not supported",
                             checkpoint.path().string(), quote(path))};
  const bool has_own = checkpoint.has(prefix + ".bits") || checkpoint.has(prefix + ".group_size") ||
                       checkpoint.has(prefix + ".mode");
  if (!has_own) prefix = "quantization";
  KAPITSA_ASSIGN(module.quant, read_quant(checkpoint, prefix));
  if (const std::string reason = misfit(module); !reason.empty())
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: module {}: {}", checkpoint.path().string(), quote(path), reason)};
  return std::optional<MlxModule>(module);
}

}  // namespace kapitsa::weights
