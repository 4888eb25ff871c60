#include "backend/cpu/panels.h"

#include "base/check.h"
#include "base/half.h"
#include "weights/codec.h"
#include "weights/iq_blocks.h"
#include "weights/mlx_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

// Puts codes and scales of one row at their places in a panel.
class RowWriter {
public:
  RowWriter(Format format, int64_t k, uint8_t* panel, int64_t row)
      : traits_(traits(format)), format_(format), k_(k), panel_(panel), row_(row) {}

  // Codes of run `run` of 32 k.
  void codes(int64_t run, const uint8_t* c) const {
    const Chunk at = chunk_of(run * 32);
    uint8_t* to =
        at.start + at.layout.codes + (run * 32 - at.first) / 32 * 64 * traits_.bits + 4 * row_;
    uint32_t v[8];  // 4 codes each
    std::memcpy(v, c, sizeof v);
    if (traits_.bits == 8) {
      for (int i = 0; i < 8; ++i)
        std::memcpy(to + 64 * i, &v[i], 4);
      return;
    }
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = (v[2 * i] & 0x0F0F0F0FU) | ((v[2 * i + 1] & 0x0F0F0F0FU) << 4);
      std::memcpy(to + 64 * i, &pair, 4);
    }
    if (traits_.bits == 5) {
      uint32_t bits = 0;
      for (int i = 0; i < 8; ++i)
        bits |= ((v[i] >> 4) & 0x01010101U) << i;
      std::memcpy(to + 256, &bits, 4);
    }
    if (traits_.bits == 6) {
      for (int h = 0; h < 2; ++h) {
        uint32_t bits = 0;
        for (int i = 0; i < 4; ++i)
          bits |= ((v[4 * h + i] >> 4) & 0x03030303U) << (2 * i);
        std::memcpy(to + 256 + 64 * h, &bits, 4);
      }
    }
  }
  // Groups of k columns.
  int groups(int k) const { return k / traits_.group; }
  void scale16(int64_t group, uint16_t scale) { put(group_at(group) + 2 * row_, scale); }
  void min16(int64_t group, uint16_t min) { put(group_at(group) + 32 + 2 * row_, min); }
  void scale32(int64_t group, float scale) { put(group_at(group) + 4 * row_, scale); }
  void min32(int64_t group, float min) { put(group_at(group) + 64 + 4 * row_, min); }
  void scale8(int64_t group, uint8_t scale) {
    group_at(group)[row_] = scale;
    if (traits_.scales == Scales::e8m0 && scale == 255) finite_ = false;
  }
  void min8(int64_t group, uint8_t min) const { group_at(group)[16 + row_] = min; }
  void super(int64_t block, uint16_t d) { put(super_at(block) + 2 * row_, d); }
  void super_min(int64_t block, uint16_t dmin) { put(super_at(block) + 32 + 2 * row_, dmin); }

  // Whether all scales so far were numbers.
  bool finite() const { return finite_; }

private:
  void put(uint8_t* to, uint16_t value) {
    const int exponent = traits_.scales == Scales::bf16_min ? 0x7F80 : 0x7C00;
    if ((value & exponent) == exponent) finite_ = false;
    std::memcpy(to, &value, 2);
  }
  void put(uint8_t* to, float value) {
    if (!std::isfinite(value)) finite_ = false;
    std::memcpy(to, &value, 4);
  }
  struct Chunk {
    uint8_t* start;
    int64_t first;  // k
    ChunkLayout layout;
  };
  Chunk chunk_of(int64_t k) const {
    const int64_t first = k / kChunkColumns * kChunkColumns;
    return {panel_ + panel_bytes(format_, first), first,
            chunk_layout(format_, std::min(kChunkColumns, k_ - first))};
  }
  uint8_t* group_at(int64_t group) const {
    const int64_t k = group * traits_.group;
    const Chunk at = chunk_of(k);
    return at.start + at.layout.scales +
           (k - at.first) / traits_.group * scale_bytes(traits_.scales);
  }
  uint8_t* super_at(int64_t block) const { return chunk_of(block * 256).start; }

  const PanelTraits& traits_;
  Format format_;
  int64_t k_;
  uint8_t* panel_;
  int64_t row_;
  bool finite_ = true;
};

// Split nibbles (weights/codec.h) of 2n values.
void unpack_nibbles(const uint8_t* bytes, int n, uint8_t* codes) {
  for (int i = 0; i < n; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + n] = bytes[i] >> 4;
  }
}

void unpack_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  uint32_t bits = 0;
  std::memcpy(&bits, qh, 4);
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<uint8_t>(codes[i] | (((bits >> i) & 1U) << 4));
}

// ---- One overload for each block type: block number `i` of the row ----

using namespace weights;  // the block structs

void pack(const BlockQ4_0& b, RowWriter& w, int64_t i) {
  uint8_t codes[32];
  unpack_nibbles(b.qs, 16, codes);
  w.codes(i, codes);
  w.scale16(i, b.d);
}
void pack(const BlockQ4_1& b, RowWriter& w, int64_t i) {
  uint8_t codes[32];
  unpack_nibbles(b.qs, 16, codes);
  w.codes(i, codes);
  w.scale16(i, b.d);
  w.min16(i, b.m);
}
void pack(const BlockQ5_0& b, RowWriter& w, int64_t i) {
  uint8_t codes[32];
  unpack_nibbles(b.qs, 16, codes);
  unpack_fifth_bits(b.qh, codes);
  w.codes(i, codes);
  w.scale16(i, b.d);
}
void pack(const BlockQ5_1& b, RowWriter& w, int64_t i) {
  uint8_t codes[32];
  unpack_nibbles(b.qs, 16, codes);
  unpack_fifth_bits(b.qh, codes);
  w.codes(i, codes);
  w.scale16(i, b.d);
  w.min16(i, b.m);
}
void pack(const BlockQ8_0& b, RowWriter& w, int64_t i) {
  w.codes(i, reinterpret_cast<const uint8_t*>(b.qs));
  w.scale16(i, b.d);
}
void pack(const BlockIq4Nl& b, RowWriter& w, int64_t i) {
  uint8_t codes[32];
  unpack_nibbles(b.qs, 16, codes);
  w.codes(i, codes);
  w.scale16(i, b.d);
}
void pack(const BlockMxfp4& b, RowWriter& w, int64_t i) {
  uint8_t codes[32];
  unpack_nibbles(b.qs, 16, codes);
  w.codes(i, codes);
  w.scale8(i, b.e);
}
void pack(const BlockNvfp4& b, RowWriter& w, int64_t i) {
  uint8_t codes[64];
  for (int s = 0; s < 4; ++s) {
    unpack_nibbles(b.qs + 8 * s, 8, codes + 16 * s);
    w.scale16(4 * i + s, f32_to_f16(ue4m3_halved(b.d[s])));
  }
  w.codes(2 * i, codes);
  w.codes(2 * i + 1, codes + 32);
}

template <typename Block>
void pack_k_min_scales(const Block& b, RowWriter& w, int64_t i) {
  w.super(i, b.d);
  w.super_min(i, b.dmin);
  for (int j = 0; j < 8; ++j) {
    const KScaleMin s = k_scale_min(b.scales, j);
    w.scale8(8 * i + j, s.scale);
    w.min8(8 * i + j, s.min);
  }
}
void pack(const BlockQ4_K& b, RowWriter& w, int64_t i) {
  pack_k_min_scales(b, w, i);
  for (int pair = 0; pair < 4; ++pair) {
    uint8_t codes[64];
    unpack_nibbles(b.qs + 32 * pair, 32, codes);
    w.codes(8 * i + 2 * pair, codes);
    w.codes(8 * i + 2 * pair + 1, codes + 32);
  }
}
void pack(const BlockQ5_K& b, RowWriter& w, int64_t i) {
  pack_k_min_scales(b, w, i);
  for (int pair = 0; pair < 4; ++pair) {
    uint8_t codes[64];
    unpack_nibbles(b.qs + 32 * pair, 32, codes);
    for (int l = 0; l < 32; ++l) {
      codes[l] = static_cast<uint8_t>(codes[l] | (((b.qh[l] >> (2 * pair)) & 1) << 4));
      codes[l + 32] =
          static_cast<uint8_t>(codes[l + 32] | (((b.qh[l] >> (2 * pair + 1)) & 1) << 4));
    }
    w.codes(8 * i + 2 * pair, codes);
    w.codes(8 * i + 2 * pair + 1, codes + 32);
  }
}
void pack(const BlockQ6_K& b, RowWriter& w, int64_t i) {
  for (int h = 0; h < 2; ++h) {
    const uint8_t* ql = b.ql + 64 * h;
    const uint8_t* qh = b.qh + 32 * h;
    uint8_t codes[128];
    for (int l = 0; l < 32; ++l) {
      const auto high = [&](int shift) { return ((qh[l] >> shift) & 3) << 4; };
      codes[l] = static_cast<uint8_t>((ql[l] & 15) | high(0));
      codes[l + 32] = static_cast<uint8_t>((ql[l + 32] & 15) | high(2));
      codes[l + 64] = static_cast<uint8_t>((ql[l] >> 4) | high(4));
      codes[l + 96] = static_cast<uint8_t>((ql[l + 32] >> 4) | high(6));
    }
    for (int run = 0; run < 4; ++run)
      w.codes(8 * i + 4 * h + run, codes + 32 * run);
  }
  w.super(i, b.d);
  for (int j = 0; j < 16; ++j)
    w.scale8(16 * i + j, static_cast<uint8_t>(b.scales[j]));
}
void pack(const BlockQ2_K& b, RowWriter& w, int64_t i) {
  for (int run = 0; run < 8; ++run) {
    uint8_t codes[32];
    for (int l = 0; l < 32; ++l)
      codes[l] = (b.qs[32 * (run / 4) + l] >> (2 * (run % 4))) & 3;
    w.codes(8 * i + run, codes);
  }
  w.super(i, b.d);
  w.super_min(i, b.dmin);
  for (int j = 0; j < 16; ++j) {
    w.scale8(16 * i + j, b.scales[j] & 15);
    w.min8(16 * i + j, b.scales[j] >> 4);
  }
}
void pack(const BlockQ3_K& b, RowWriter& w, int64_t i) {
  for (int run = 0; run < 8; ++run) {
    uint8_t codes[32];  // with the offset of 4 left in
    for (int l = 0; l < 32; ++l) {
      const int low = (b.qs[32 * (run / 4) + l] >> (2 * (run % 4))) & 3;
      codes[l] = static_cast<uint8_t>(low | (((b.hmask[l] >> run) & 1) << 2));
    }
    w.codes(8 * i + run, codes);
  }
  w.super(i, b.d);
  for (int j = 0; j < 16; ++j)
    w.scale8(16 * i + j, static_cast<uint8_t>(q3_k_scale(b.scales, j)));
}
void pack(const BlockIq4Xs& b, RowWriter& w, int64_t i) {
  w.super(i, b.d);
  for (int j = 0; j < 8; ++j) {
    uint8_t codes[32];
    unpack_nibbles(b.qs + 16 * j, 16, codes);
    w.codes(8 * i + j, codes);
    const int low = (b.scales_l[j / 2] >> (4 * (j % 2))) & 15;
    const int high = (b.scales_h >> (2 * j)) & 3;
    w.scale8(8 * i + j, static_cast<uint8_t>((low | (high << 4)) - 32));
  }
}

template <typename Block>
  requires requires(const Block& b, IqValues& v) { unpack(b, v); }
void pack(const Block& b, RowWriter& w, int64_t i) {
  IqValues v;
  unpack(b, v);
  w.super(i, v.d);
  for (int run = 0; run < 8; ++run)
    w.codes(8 * i + run, v.codes + 32 * run);
  const int n = w.groups(256);
  for (int j = 0; j < n; ++j)
    w.scale8(n * i + j, v.scales[16 / n * j]);
}

template <typename Block>
void pack_blocks(const std::byte* row, int64_t n_blocks, RowWriter& w) {
  for (int64_t i = 0; i < n_blocks; ++i) {
    Block block;  // rows of a file need not be aligned
    std::memcpy(&block, row + i * static_cast<int64_t>(sizeof block), sizeof block);
    pack(block, w, i);
  }
}

void pack_gguf_row(DType dtype, const std::byte* row, int64_t k, RowWriter& w) {
  const int64_t n = k / dtype_info(dtype).block_elements;
  switch (dtype) {
  case DType::q4_0: return pack_blocks<BlockQ4_0>(row, n, w);
  case DType::q4_1: return pack_blocks<BlockQ4_1>(row, n, w);
  case DType::q5_0: return pack_blocks<BlockQ5_0>(row, n, w);
  case DType::q5_1: return pack_blocks<BlockQ5_1>(row, n, w);
  case DType::q8_0: return pack_blocks<BlockQ8_0>(row, n, w);
  case DType::q4_k: return pack_blocks<BlockQ4_K>(row, n, w);
  case DType::q5_k: return pack_blocks<BlockQ5_K>(row, n, w);
  case DType::q6_k: return pack_blocks<BlockQ6_K>(row, n, w);
  case DType::q2_k: return pack_blocks<BlockQ2_K>(row, n, w);
  case DType::q3_k: return pack_blocks<BlockQ3_K>(row, n, w);
  case DType::iq4_nl: return pack_blocks<BlockIq4Nl>(row, n, w);
  case DType::iq4_xs: return pack_blocks<BlockIq4Xs>(row, n, w);
  case DType::iq1_s: return pack_blocks<BlockIq1S>(row, n, w);
  case DType::iq1_m: return pack_blocks<BlockIq1M>(row, n, w);
  case DType::iq2_xxs: return pack_blocks<BlockIq2Xxs>(row, n, w);
  case DType::iq2_xs: return pack_blocks<BlockIq2Xs>(row, n, w);
  case DType::iq2_s: return pack_blocks<BlockIq2S>(row, n, w);
  case DType::iq3_xxs: return pack_blocks<BlockIq3Xxs>(row, n, w);
  case DType::iq3_s: return pack_blocks<BlockIq3S>(row, n, w);
  case DType::mxfp4: return pack_blocks<BlockMxfp4>(row, n, w);
  case DType::nvfp4: return pack_blocks<BlockNvfp4>(row, n, w);
  default: break;
  }
  KAPITSA_CHECK(false, "panel_format() named a type that cannot be packed");
}

// ---- MLX groups (weights/mlx_codec.h) ----

std::optional<Format> grouped_format(const plan::Weight& weight) {
  const GroupQuant& group = weight.group;
  switch (group.mode) {
  case GroupMode::mxfp4: return Format::mxfp4;
  case GroupMode::nvfp4: return Format::nvfp4;
  case GroupMode::mxfp8: return std::nullopt;
  case GroupMode::affine: break;
  }
  if (weight.scale_dtype == DType::bf16) return group.bits <= 4 ? Format::affine4 : Format::affine8;
  // An affine group of four bits with f16 numbers is a Q4_1 block.
  if (weight.scale_dtype == DType::f16) return group.bits <= 4 ? Format::q4_1 : Format::affine8_f16;
  return group.bits <= 4 ? Format::affine4_f32 : Format::affine8_f32;
}

// Codes of 32 values from bit `first` of the row's stream on.
void unpack_stream(const std::byte* row, int64_t first, int bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    const int64_t bit = first + int64_t{i} * bits;
    const auto low = std::to_integer<unsigned>(row[bit / 8]);
    const bool spills = bit % 8 + bits > 8;
    const auto high = spills ? std::to_integer<unsigned>(row[bit / 8 + 1]) : 0U;
    codes[i] = static_cast<uint8_t>(((low | (high << 8)) >> (bit % 8)) & ((1U << bits) - 1U));
  }
}

void pack_grouped_row(const plan::Weight& weight, Format format, int64_t expert, int64_t row,
                      const std::byte* codes, RowWriter& w) {
  const GroupQuant& group = weight.group;
  const int64_t n_groups = weight.in / group.group;
  const int64_t first_group = row * n_groups;
  const std::span<const std::byte> scales = plan::matrix_scales(weight, expert);
  const std::span<const std::byte> biases = plan::matrix_biases(weight, expert);
  const auto number = [&]<typename T>(std::span<const std::byte> array, int64_t g, T value) {
    std::memcpy(&value, array.data() + static_cast<int64_t>(sizeof value) * (first_group + g),
                sizeof value);
    return value;
  };
  const bool is_f32 = traits(format).scales == Scales::f32_min;
  for (int64_t run = 0; run < weight.in / 32; ++run) {
    uint8_t run_codes[32];
    unpack_stream(codes, run * 32 * group.bits, group.bits, run_codes);
    if (traits(format).offset == -128) {
      for (uint8_t& code : run_codes)
        code = static_cast<uint8_t>(code - 128);
    }
    w.codes(run, run_codes);
    const int64_t own = run * 32 / group.group;
    if (group.mode == GroupMode::affine && is_f32) {
      w.scale32(run, number(scales, own, float{}));
      w.min32(run, number(biases, own, float{}));
    } else if (group.mode == GroupMode::affine) {
      w.scale16(run, number(scales, own, uint16_t{}));
      w.min16(run, number(biases, own, uint16_t{}));
    } else if (group.mode == GroupMode::mxfp4) {
      w.scale8(run, std::to_integer<uint8_t>(scales[static_cast<size_t>(first_group + run)]));
    } else {
      for (int64_t g = 2 * run; g < 2 * run + 2; ++g) {
        const auto byte = std::to_integer<uint8_t>(scales[static_cast<size_t>(first_group + g)]);
        w.scale16(g, f32_to_f16(0.5F * e4m3_to_f32(byte)));
      }
    }
  }
}

}  // namespace

std::optional<Format> panel_format(const plan::Weight& weight) {
  const auto format = [&]() -> std::optional<Format> {
    switch (weight.dtype) {
    case DType::q4_0: return Format::q4_0;
    case DType::q4_1: return Format::q4_1;
    case DType::q5_0: return Format::q5_0;
    case DType::q5_1: return Format::q5_1;
    case DType::q8_0: return Format::q8_0;
    case DType::q4_k: return Format::q4_k;
    case DType::q5_k: return Format::q5_k;
    case DType::q6_k: return Format::q6_k;
    case DType::q2_k: return Format::q2_k;
    case DType::q3_k: return Format::q3_k;
    case DType::iq4_nl: return Format::iq4_nl;
    case DType::iq4_xs: return Format::iq4_xs;
    case DType::iq1_s:
    case DType::iq1_m: return Format::iq1;
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s: return Format::iq2;
    case DType::iq3_xxs: return Format::iq3_xxs;
    case DType::iq3_s: return Format::iq3_s;
    case DType::mxfp4: return Format::mxfp4;
    case DType::nvfp4: return Format::nvfp4;
    case DType::grouped: return grouped_format(weight);
    default: return std::nullopt;
    }
  }();
  if (!format || weight.in % 32 != 0) return std::nullopt;
  if (has_supers(traits(*format).scales) && weight.in % 256 != 0) return std::nullopt;
  return format;
}

int64_t n_panels(const plan::Weight& weight) {
  return (weight.out + kPanelRows - 1) / kPanelRows;
}

int64_t packed_bytes(const plan::Weight& weight, Format format) {
  return weight.experts * n_panels(weight) * panel_bytes(format, weight.in);
}

bool pack_panel(const plan::Weight& weight, Format format, int64_t expert, int64_t tile,
                uint8_t* panel) {
  std::memset(panel, 0, static_cast<size_t>(panel_bytes(format, weight.in)));
  const std::byte* matrix = plan::matrix_bytes(weight, expert).data();
  const int64_t row_bytes = plan::row_bytes(weight);
  const int64_t first = tile * kPanelRows;
  bool finite = true;
  for (int64_t row = first; row < std::min(first + kPanelRows, weight.out); ++row) {
    RowWriter writer(format, weight.in, panel, row - first);
    const std::byte* bytes = matrix + row * row_bytes;
    if (weight.dtype == DType::grouped) {
      pack_grouped_row(weight, format, expert, row, bytes, writer);
    } else {
      pack_gguf_row(weight.dtype, bytes, weight.in, writer);
    }
    finite = finite && writer.finite();
  }
  return finite;
}

}  // namespace kapitsa::backend::cpu
