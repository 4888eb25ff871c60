#include "engine/weight_check.h"

#include "base/thread_pool.h"
#include "weights/codec.h"
#include "weights/hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

namespace kapitsa::engine {
namespace {

constexpr float kAbsurd = 0x1p64F;     // weights of trained models stay below 2^12
constexpr unsigned kAbsurdE8m0 = 191;  // 2^(191 - 127) = 2^64; 255 is NaN
constexpr int64_t kChunk = 4096;       // values; a multiple of every block

bool is_e4m3_nan(std::byte byte) {
  return (std::to_integer<unsigned>(byte) & 0x7FU) == 0x7FU;
}
bool is_bad_e8m0(std::byte byte) {
  return std::to_integer<unsigned>(byte) >= kAbsurdE8m0;
}

// The first byte of a range that `is_bad` holds for.
template <typename IsBad>
std::optional<size_t> find_byte(std::span<const std::byte> bytes, const IsBad& is_bad) {
  const auto found = std::ranges::find_if(bytes, is_bad);
  if (found == bytes.end()) return std::nullopt;
  return static_cast<size_t>(found - bytes.begin());
}

// The first block of a GGUF type with scales of 8 bits whose scale is no plausible number.
std::optional<size_t> bad_block(const weights::Tensor& tensor) {
  if (tensor.dtype != DType::mxfp4 && tensor.dtype != DType::nvfp4) return std::nullopt;
  const auto size = static_cast<size_t>(dtype_info(tensor.dtype).block_bytes);
  for (size_t block = 0; (block + 1) * size <= tensor.data.size(); ++block) {
    const auto bytes = tensor.data.subspan(block * size, size);
    const bool bad = tensor.dtype == DType::mxfp4
                         ? is_bad_e8m0(bytes[0])
                         : find_byte(bytes.first(4), is_e4m3_nan).has_value();
    if (bad) return block;
  }
  return std::nullopt;
}

// What is wrong with the bytes of a module that MLX quantised with scales of 8 bits.
std::string mlx_problem(const weights::Checkpoint& file, const weights::Tensor& scales) {
  constexpr std::string_view kSuffix = ".scales";
  if (!scales.name.ends_with(kSuffix)) return {};
  const std::string path = scales.name.substr(0, scales.name.size() - kSuffix.size());
  const auto module = weights::find_mlx_module(file, path);
  if (!module) return module.error().message;
  if (!*module || (*module)->quant.mode == weights::MlxMode::affine) return {};
  const weights::MlxMode mode = (*module)->quant.mode;
  const auto bad = mode == weights::MlxMode::nvfp4 ? find_byte(scales.data, is_e4m3_nan)
                                                   : find_byte(scales.data, is_bad_e8m0);
  if (bad) return fmt::format("tensor '{}': scale {} is NaN or too large", scales.name, *bad);
  if (mode != weights::MlxMode::mxfp8) return {};
  const auto code = find_byte((*module)->weight->data, is_e4m3_nan);
  return code ? fmt::format("tensor '{}': value {} is NaN", (*module)->weight->name, *code) : "";
}

// Index of the first value that is not finite or absurd, -1 for none.
Result<int64_t> first_bad_value(const weights::Tensor& tensor, Range range,
                                std::vector<float>& values) {
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    values.resize(static_cast<size_t>(n));
    const int64_t offset = dtype_bytes(tensor.dtype, begin).value_or(0);
    const int64_t size = dtype_bytes(tensor.dtype, n).value_or(0);
    KAPITSA_TRY(weights::dequantise(
        tensor.dtype, tensor.data.subspan(static_cast<size_t>(offset), static_cast<size_t>(size)),
        values));
    const auto bad = std::ranges::find_if(values, [](float v) { return !(std::abs(v) < kAbsurd); });
    if (bad != values.end()) return begin + (bad - values.begin());
  }
  return int64_t{-1};
}

}  // namespace

WeightCheck check_weights(const weights::Checkpoint& file, int threads) {
  WeightCheck check;
  ThreadPool pool(threads);
  const auto n_threads = static_cast<size_t>(pool.n_threads());
  std::vector<std::vector<float>> scratch(n_threads);
  for (const weights::Tensor& tensor : file.tensors()) {
    check.problem = mlx_problem(file, tensor);
    if (const auto block = bad_block(tensor))
      check.problem = fmt::format("tensor '{}': the scale of block {} is NaN or too large",
                                  tensor.name, *block);
    if (!check.problem.empty()) return check;
    if (!weights::can_dequantise(tensor.dtype)) {
      ++check.n_skipped;
      continue;
    }
    std::vector<Result<int64_t>> found(n_threads, int64_t{-1});
    pool.run([&](int thread, int n) {
      const auto t = static_cast<size_t>(thread);
      found[t] =
          first_bad_value(tensor, partition(tensor.n_elements(), thread, n, kChunk), scratch[t]);
    });
    for (const auto& one : found) {
      if (one && *one < 0) continue;
      check.problem = fmt::format("tensor '{}': {}", tensor.name,
                                  one ? fmt::format("value {} is not finite or above 2^64", *one)
                                      : one.error().message);
      return check;
    }
    ++check.n_tensors;
    check.n_values += tensor.n_elements();
  }
  return check;
}

}  // namespace kapitsa::engine
