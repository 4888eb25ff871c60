// Each encoder picks the scale first, rounds the scale to what the block stores, and only then
// rounds the values with that stored scale.
#include "weights/quantise.h"

#include "base/half.h"
#include "weights/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::weights {
namespace {

float inverse(float scale) {
  return scale == 0.0f ? 0.0f : 1.0f / scale;
}

int round_to(float value, int min, int max) {
  return static_cast<int>(
      std::clamp(std::round(value), static_cast<float>(min), static_cast<float>(max)));
}

// The value of largest magnitude, with its sign.
float largest(const float* x, int n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

void set_nibble(uint8_t& byte, int q, bool high) {
  byte = static_cast<uint8_t>(byte | ((q & 15) << (high ? 4 : 0)));
}

// Code of value j in a block of 32 with split nibbles; the fifth bit goes to qh where there is one.
void put_code(uint8_t* qs, uint8_t* qh, int j, int q) {
  set_nibble(qs[j % 16], q, j >= 16);
  if (qh != nullptr) qh[j / 8] = static_cast<uint8_t>(qh[j / 8] | ((q >> 4) << (j % 8)));
}

// Symmetric types: the value of largest magnitude gets the most negative code, whose range is one
// step longer.
template <typename Block>
void encode_symmetric(const float* x, Block& b, uint8_t* qh, int half_range) {
  b.d = f32_to_f16(largest(x, 32) / static_cast<float>(-half_range));
  const float id = inverse(f16_to_f32(b.d));
  for (int j = 0; j < 32; ++j)
    put_code(b.qs, qh, j, round_to(x[j] * id, -half_range, half_range - 1) + half_range);
}

template <typename Block>
void encode_affine(const float* x, Block& b, uint8_t* qh, int max_code) {
  const auto [min, max] = std::minmax_element(x, x + 32);
  b.d = f32_to_f16((*max - *min) / static_cast<float>(max_code));
  b.m = f32_to_f16(*min);
  const float id = inverse(f16_to_f32(b.d));
  const float m = f16_to_f32(b.m);
  for (int j = 0; j < 32; ++j)
    put_code(b.qs, qh, j, round_to((x[j] - m) * id, 0, max_code));
}

void encode(const float* x, BlockQ4_0& b) {
  encode_symmetric(x, b, nullptr, 8);
}
void encode(const float* x, BlockQ5_0& b) {
  encode_symmetric(x, b, b.qh, 16);
}
void encode(const float* x, BlockQ4_1& b) {
  encode_affine(x, b, nullptr, 15);
}
void encode(const float* x, BlockQ5_1& b) {
  encode_affine(x, b, b.qh, 31);
}

void encode(const float* x, BlockQ8_0& b) {
  b.d = f32_to_f16(std::fabs(largest(x, 32)) / 127.0f);
  const float id = inverse(f16_to_f32(b.d));
  for (int j = 0; j < 32; ++j)
    b.qs[j] = static_cast<int8_t>(round_to(x[j] * id, -127, 127));
}

// The inverse of k_scale_min().
void put_scale_min(uint8_t* s, int j, int scale, int min) {
  if (j < 4) {
    s[j] = static_cast<uint8_t>(s[j] | scale);
    s[j + 4] = static_cast<uint8_t>(s[j + 4] | min);
  } else {
    s[j + 4] = static_cast<uint8_t>((scale & 15) | ((min & 15) << 4));
    s[j - 4] = static_cast<uint8_t>(s[j - 4] | ((scale >> 4) << 6));
    s[j] = static_cast<uint8_t>(s[j] | ((min >> 4) << 6));
  }
}

// Q4_K and Q5_K: each sub-block covers min..max with min <= 0, because mins are subtracted and not
// negative; scales and mins are then six-bit multiples of d and dmin.
template <typename Block>
void encode_k(const float* x, Block& b, int max_code, int* codes) {
  float scales[8];
  float mins[8];
  for (int j = 0; j < 8; ++j) {
    const auto [low, high] = std::minmax_element(x + 32 * j, x + 32 * j + 32);
    mins[j] = std::max(0.0f, -*low);
    scales[j] = std::max(0.0f, *high + mins[j]) / static_cast<float>(max_code);
  }
  b.d = f32_to_f16(*std::max_element(scales, scales + 8) / 63.0f);
  b.dmin = f32_to_f16(*std::max_element(mins, mins + 8) / 63.0f);
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 8; ++j) {
    const int scale = round_to(scales[j] * inverse(d), 0, 63);
    const int min = round_to(mins[j] * inverse(dmin), 0, 63);
    put_scale_min(b.scales, j, scale, min);
    const float step = inverse(d * static_cast<float>(scale));
    const float offset = dmin * static_cast<float>(min);
    for (int l = 0; l < 32; ++l)
      codes[32 * j + l] = round_to((x[32 * j + l] + offset) * step, 0, max_code);
  }
  for (int i = 0; i < 256; ++i)
    set_nibble(b.qs[32 * (i / 64) + i % 32], codes[i], i % 64 >= 32);
}

void encode(const float* x, BlockQ4_K& b) {
  int codes[256];
  encode_k(x, b, 15, codes);
}

void encode(const float* x, BlockQ5_K& b) {
  int codes[256];
  encode_k(x, b, 31, codes);
  for (int i = 0; i < 256; ++i)
    b.qh[i % 32] = static_cast<uint8_t>(b.qh[i % 32] | ((codes[i] >> 4) << (i / 32)));
}

void encode(const float* x, BlockQ6_K& b) {
  float scales[16];
  for (int s = 0; s < 16; ++s)
    scales[s] = largest(x + 16 * s, 16) / -32.0f;
  b.d = f32_to_f16(std::fabs(largest(scales, 16)) / 127.0f);
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 256; ++i) {
    const int scale = round_to(scales[i / 16] * inverse(d), -127, 127);
    b.scales[i / 16] = static_cast<int8_t>(scale);
    const float step = inverse(d * static_cast<float>(scale));
    const int q = round_to(x[i] * step, -32, 31) + 32;
    const int half = i / 128;
    const int part = i % 128 / 32;
    set_nibble(b.ql[64 * half + 32 * (part % 2) + i % 32], q, part >= 2);
    uint8_t& high = b.qh[32 * half + i % 32];
    high = static_cast<uint8_t>(high | ((q >> 4) << (2 * part)));
  }
}

template <typename Block>
void encode_all(std::span<const float> values, std::vector<std::byte>& out) {
  const size_t n_blocks = out.size() / sizeof(Block);
  const size_t n = n_blocks == 0 ? 0 : values.size() / n_blocks;
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block{};
    encode(values.data() + i * n, block);
    std::memcpy(out.data() + i * sizeof(Block), &block, sizeof(Block));
  }
}

void convert_all(std::span<const float> values, uint16_t (*convert)(float),
                 std::vector<std::byte>& out) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = convert(values[i]);
    std::memcpy(out.data() + i * sizeof half, &half, sizeof half);
  }
}

}  // namespace

Result<std::vector<std::byte>> quantise(DType dtype, std::span<const float> values) {
  const auto bytes = dtype_bytes(dtype, static_cast<int64_t>(values.size()));
  KAPITSA_CHECK(bytes.has_value(), "the values are not a whole number of blocks");
  std::vector<std::byte> out(static_cast<size_t>(*bytes));
  switch (dtype) {
  case DType::f32: std::copy_n(std::as_bytes(values).begin(), out.size(), out.begin()); break;
  case DType::f16: convert_all(values, f32_to_f16, out); break;
  case DType::bf16: convert_all(values, f32_to_bf16, out); break;
  case DType::q4_0: encode_all<BlockQ4_0>(values, out); break;
  case DType::q4_1: encode_all<BlockQ4_1>(values, out); break;
  case DType::q5_0: encode_all<BlockQ5_0>(values, out); break;
  case DType::q5_1: encode_all<BlockQ5_1>(values, out); break;
  case DType::q8_0: encode_all<BlockQ8_0>(values, out); break;
  case DType::q4_k: encode_all<BlockQ4_K>(values, out); break;
  case DType::q5_k: encode_all<BlockQ5_K>(values, out); break;
  case DType::q6_k: encode_all<BlockQ6_K>(values, out); break;
  default:
    return Error{ErrorCode::unsupported,
                 fmt::format("cannot encode weights as {}", dtype_info(dtype).name)};
  }
  return out;
}

}  // namespace kapitsa::weights
