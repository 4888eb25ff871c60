#include "weights/mlx_codec.h"

#include "weights/codec.h"

#include <cmath>
#include <limits>
#include <vector>

namespace kapitsa::weights {
namespace {

// Bits `first` .. `first + n - 1` of a little-endian bit stream, n <= 8.
uint32_t bits_at(std::span<const std::byte> stream, size_t first, int n) {
  const size_t byte = first / 8;
  uint32_t window = std::to_integer<uint32_t>(stream[byte]);
  if (byte + 1 < stream.size()) window |= std::to_integer<uint32_t>(stream[byte + 1]) << 8;
  return (window >> (first % 8)) & ((1u << n) - 1);
}

// 2^(e - 127), e = 0 subnormal, e = 255 infinite.
float e8m0_to_f32(uint8_t e) {
  return e8m0_halved(e) * 2.0f;
}

// Code 8 is negative zero, unlike in GGUF's table.
float e2m1_to_f32(uint32_t code) {
  const float magnitude = static_cast<float>(kE2m1Doubled[code & 7]) * 0.5f;
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace

const char* to_string(MlxMode mode) {
  switch (mode) {
  case MlxMode::affine: return "affine";
  case MlxMode::mxfp4: return "mxfp4";
  case MlxMode::mxfp8: return "mxfp8";
  case MlxMode::nvfp4: return "nvfp4";
  }
  return "unknown";
}

bool is_valid(const MlxQuant& quant) {
  const auto [bits, group, mode] = quant;
  switch (mode) {
  case MlxMode::affine:
    return (group == 32 || group == 64 || group == 128) && bits >= 2 && bits <= 8 && bits != 7;
  case MlxMode::mxfp4: return bits == 4 && group == 32;
  case MlxMode::mxfp8: return bits == 8 && group == 32;
  case MlxMode::nvfp4: return bits == 4 && group == 16;
  }
  return false;
}

float e4m3_to_f32(uint8_t byte) {
  const uint8_t magnitude = byte & 0x7F;
  if (magnitude == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  const float value = ue4m3_halved(magnitude) * 2.0f;
  return (byte & 0x80) != 0 ? -value : value;
}

void dequantise_mlx(const MlxQuant& quant, std::span<const std::byte> weight,
                    std::span<const std::byte> scales, std::span<const std::byte> biases,
                    DType scale_dtype, std::span<float> out) {
  const auto [bits, group, mode] = quant;
  const size_t n_groups = out.size() / static_cast<size_t>(group);
  KAPITSA_CHECK(is_valid(quant) && out.size() % static_cast<size_t>(group) == 0 &&
                    weight.size() == out.size() * static_cast<size_t>(bits) / 8,
                "the weights do not hold the wanted row");
  std::vector<float> scale(n_groups);
  std::vector<float> bias(n_groups);
  if (mode == MlxMode::affine) {
    const Status decoded = dequantise(scale_dtype, scales, scale);
    KAPITSA_CHECK(decoded.ok() && dequantise(scale_dtype, biases, bias).ok(),
                  "scales and biases are plain numbers");
  } else {
    KAPITSA_CHECK(scales.size() == n_groups, "one scale byte for each group");
    for (size_t g = 0; g < n_groups; ++g) {
      const auto byte = std::to_integer<uint8_t>(scales[g]);
      scale[g] = mode == MlxMode::nvfp4 ? e4m3_to_f32(byte) : e8m0_to_f32(byte);
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t q = bits_at(weight, i * static_cast<size_t>(bits), bits);
    const size_t g = i / static_cast<size_t>(group);
    switch (mode) {
    case MlxMode::affine: out[i] = scale[g] * static_cast<float>(q) + bias[g]; break;
    case MlxMode::mxfp8: out[i] = scale[g] * e4m3_to_f32(static_cast<uint8_t>(q)); break;
    case MlxMode::mxfp4:
    case MlxMode::nvfp4: out[i] = scale[g] * e2m1_to_f32(q); break;
    }
  }
}

}  // namespace kapitsa::weights
