// The reference decoders, one function for each block type, written like the formulas in codec.h
// and in their order of operations. Slow on purpose; backends have their own.
#include "weights/codec.h"

#include "base/half.h"
#include "weights/iq_blocks.h"

#include <fmt/format.h>

#include <cstring>

namespace kapitsa::weights {
namespace {

// The value of bit j of the 32-bit number in qh, as the fifth bit of a quant.
int fifth_bit(const uint8_t* qh, int j) {
  return ((qh[j / 8] >> (j % 8)) & 1) << 4;
}

void decode(const BlockQ4_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((b.qs[j] & 15) - 8);
    out[j + 16] = d * static_cast<float>((b.qs[j] >> 4) - 8);
  }
}

void decode(const BlockQ4_1& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(b.qs[j] & 15) + m;
    out[j + 16] = d * static_cast<float>(b.qs[j] >> 4) + m;
  }
}

void decode(const BlockQ5_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(((b.qs[j] & 15) | fifth_bit(b.qh, j)) - 16);
    out[j + 16] = d * static_cast<float>(((b.qs[j] >> 4) | fifth_bit(b.qh, j + 16)) - 16);
  }
}

void decode(const BlockQ5_1& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((b.qs[j] & 15) | fifth_bit(b.qh, j)) + m;
    out[j + 16] = d * static_cast<float>((b.qs[j] >> 4) | fifth_bit(b.qh, j + 16)) + m;
  }
}

void decode(const BlockQ8_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j)
    out[j] = d * static_cast<float>(b.qs[j]);
}

void decode(const BlockIq4Nl& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIq4Values[b.qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kIq4Values[b.qs[j] >> 4]);
  }
}

void decode(const BlockMxfp4& b, float* out) {
  const float d = e8m0_halved(b.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kE2m1Doubled[b.qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kE2m1Doubled[b.qs[j] >> 4]);
  }
}

void decode(const BlockNvfp4& b, float* out) {
  for (int s = 0; s < 4; ++s) {
    const float d = ue4m3_halved(b.d[s]);
    for (int j = 0; j < 8; ++j) {
      const uint8_t byte = b.qs[8 * s + j];
      out[16 * s + j] = d * static_cast<float>(kE2m1Doubled[byte & 15]);
      out[16 * s + j + 8] = d * static_cast<float>(kE2m1Doubled[byte >> 4]);
    }
  }
}

void decode(const BlockQ4_K& b, float* out) {
  for (int j = 0; j < 8; ++j) {
    const KScaleMin sm = k_scale_min(b.scales, j);
    const float d = f16_to_f32(b.d) * static_cast<float>(sm.scale);
    const float m = f16_to_f32(b.dmin) * static_cast<float>(sm.min);
    for (int l = 0; l < 32; ++l) {
      const int q = (b.qs[32 * (j / 2) + l] >> (4 * (j % 2))) & 15;
      out[32 * j + l] = d * static_cast<float>(q) - m;
    }
  }
}

void decode(const BlockQ5_K& b, float* out) {
  for (int j = 0; j < 8; ++j) {
    const KScaleMin sm = k_scale_min(b.scales, j);
    const float d = f16_to_f32(b.d) * static_cast<float>(sm.scale);
    const float m = f16_to_f32(b.dmin) * static_cast<float>(sm.min);
    for (int l = 0; l < 32; ++l) {
      const int low = (b.qs[32 * (j / 2) + l] >> (4 * (j % 2))) & 15;
      const int high = (b.qh[l] >> j) & 1;
      out[32 * j + l] = d * static_cast<float>(low | (high << 4)) - m;
    }
  }
}

void decode(const BlockQ6_K& b, float* out) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int part = i % 128 / 32;  // selects the nibble and the bit pair
    const int l = i % 32;
    const uint8_t byte = b.ql[64 * half + 32 * (part % 2) + l];
    const int low = (byte >> (4 * (part / 2))) & 15;
    const int high = (b.qh[32 * half + l] >> (2 * part)) & 3;
    const int8_t scale = b.scales[i / 16];
    const float d = f16_to_f32(b.d) * static_cast<float>(scale);
    out[i] = d * static_cast<float>((low | (high << 4)) - 32);
  }
}

void decode(const BlockQ2_K& b, float* out) {
  for (int i = 0; i < 256; ++i) {
    const uint8_t scale = b.scales[i / 16];
    const float d = f16_to_f32(b.d) * static_cast<float>(scale & 15);
    const float m = f16_to_f32(b.dmin) * static_cast<float>(scale >> 4);
    const int q = (b.qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
    out[i] = d * static_cast<float>(q) - m;
  }
}

void decode(const BlockQ3_K& b, float* out) {
  for (int i = 0; i < 256; ++i) {
    const int low = (b.qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
    const bool set = ((b.hmask[i % 32] >> (i / 32)) & 1) != 0;
    const float d = f16_to_f32(b.d) * static_cast<float>(q3_k_scale(b.scales, i / 16));
    out[i] = d * static_cast<float>(low - (set ? 0 : 4));
  }
}

void decode(const BlockIq4Xs& b, float* out) {
  for (int j = 0; j < 8; ++j) {
    const int low = (b.scales_l[j / 2] >> (4 * (j % 2))) & 15;
    const int high = (b.scales_h >> (2 * j)) & 3;
    const float d = f16_to_f32(b.d) * static_cast<float>((low | (high << 4)) - 32);
    for (int l = 0; l < 16; ++l) {
      const uint8_t byte = b.qs[16 * j + l];
      out[32 * j + l] = d * static_cast<float>(kIq4Values[byte & 15]);
      out[32 * j + l + 16] = d * static_cast<float>(kIq4Values[byte >> 4]);
    }
  }
}

// How each IQ type reads the codes that unpack() gives.
struct IqMeaning {
  const int8_t (&values)[16];
  float factor;
};
IqMeaning meaning(const BlockIq1S&) {
  return {kIq1Values, kIq1Factor};
}
IqMeaning meaning(const BlockIq1M&) {
  return {kIq1Values, kIq1Factor};
}
IqMeaning meaning(const BlockIq2Xxs&) {
  return {kIq2Values, kIq2Factor};
}
IqMeaning meaning(const BlockIq2Xs&) {
  return {kIq2Values, kIq2Factor};
}
IqMeaning meaning(const BlockIq2S&) {
  return {kIq2Values, kIq2Factor};
}
IqMeaning meaning(const BlockIq3Xxs&) {
  return {kIq3XxsValues, kIq3XxsFactor};
}
IqMeaning meaning(const BlockIq3S&) {
  return {kIq3SValues, kIq3SFactor};
}

template <typename Block>
  requires requires(const Block& b) { meaning(b); }
void decode(const Block& b, float* out) {
  IqValues v;
  unpack(b, v);
  const IqMeaning m = meaning(b);
  for (int i = 0; i < 256; ++i) {
    const int run = i / 16;
    const float d = f16_to_f32(v.d) * m.factor * static_cast<float>(v.scales[run]);
    out[i] = d * static_cast<float>(m.values[v.codes[i]]);
  }
}

// Copies each block out of the file's bytes first, because they may not be aligned for Block.
template <typename Block>
Status decode_all(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const auto n = static_cast<size_t>(dtype_info(dtype).block_elements);
  for (size_t i = 0; i < blocks.size() / sizeof(Block); ++i) {
    Block block;
    std::memcpy(&block, blocks.data() + i * sizeof(Block), sizeof(Block));
    decode(block, out.data() + i * n);
  }
  return {};
}

template <typename T, typename Convert>
Status convert_all(std::span<const std::byte> bytes, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = convert(value);
  }
  return {};
}

Error unsupported(DType dtype) {
  return {ErrorCode::unsupported, fmt::format("weights of type {} cannot be decoded yet; use "
                                              "another quantisation of the model",
                                              dtype_info(dtype).name)};
}

}  // namespace

bool can_dequantise(DType dtype) {
  return dtype_bytes(dtype, 0).has_value() && dequantise(dtype, {}, {}).ok();
}

Status dequantise(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  KAPITSA_CHECK(dtype_bytes(dtype, static_cast<int64_t>(out.size())) ==
                    static_cast<int64_t>(blocks.size()),
                "the blocks do not hold the wanted number of values");
  switch (dtype) {
  case DType::f32: return convert_all<float>(blocks, out, [](float v) { return v; });
  case DType::f16: return convert_all<uint16_t>(blocks, out, f16_to_f32);
  case DType::bf16: return convert_all<uint16_t>(blocks, out, bf16_to_f32);
  case DType::f64:
    return convert_all<double>(blocks, out, [](double v) { return static_cast<float>(v); });
  case DType::q4_0: return decode_all<BlockQ4_0>(dtype, blocks, out);
  case DType::q4_1: return decode_all<BlockQ4_1>(dtype, blocks, out);
  case DType::q5_0: return decode_all<BlockQ5_0>(dtype, blocks, out);
  case DType::q5_1: return decode_all<BlockQ5_1>(dtype, blocks, out);
  case DType::q8_0: return decode_all<BlockQ8_0>(dtype, blocks, out);
  case DType::q2_k: return decode_all<BlockQ2_K>(dtype, blocks, out);
  case DType::q3_k: return decode_all<BlockQ3_K>(dtype, blocks, out);
  case DType::q4_k: return decode_all<BlockQ4_K>(dtype, blocks, out);
  case DType::q5_k: return decode_all<BlockQ5_K>(dtype, blocks, out);
  case DType::q6_k: return decode_all<BlockQ6_K>(dtype, blocks, out);
  case DType::iq1_s: return decode_all<BlockIq1S>(dtype, blocks, out);
  case DType::iq1_m: return decode_all<BlockIq1M>(dtype, blocks, out);
  case DType::iq2_xxs: return decode_all<BlockIq2Xxs>(dtype, blocks, out);
  case DType::iq2_xs: return decode_all<BlockIq2Xs>(dtype, blocks, out);
  case DType::iq2_s: return decode_all<BlockIq2S>(dtype, blocks, out);
  case DType::iq3_xxs: return decode_all<BlockIq3Xxs>(dtype, blocks, out);
  case DType::iq3_s: return decode_all<BlockIq3S>(dtype, blocks, out);
  case DType::iq4_nl: return decode_all<BlockIq4Nl>(dtype, blocks, out);
  case DType::iq4_xs: return decode_all<BlockIq4Xs>(dtype, blocks, out);
  case DType::mxfp4: return decode_all<BlockMxfp4>(dtype, blocks, out);
  case DType::nvfp4: return decode_all<BlockNvfp4>(dtype, blocks, out);
  case DType::i8:
  case DType::i16:
  case DType::i32:
  case DType::i64:
  case DType::u8:
  case DType::u32:
  case DType::grouped: break;
  }
  return unsupported(dtype);
}

}  // namespace kapitsa::weights
