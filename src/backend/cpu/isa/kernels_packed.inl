// The integer kernels over panels (isa/panel.h), written once over Bytes, Ints and Vec
// (isa/vec_*.h): a vector of kWidth rows by 4 k. Included inside an anonymous namespace by one
// source file for each instruction set.
//
// Sums over a group of k are exact integers; floats are added once for each group, in k order, in
// one accumulator for each (row, output). So an output's bits depend on its own row and weights
// only.

// The code books of IQ4_NL and, doubled, of E2M1, as in weights/codec.h, and those of
// weights/iq_blocks.h.
alignas(16) constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
alignas(16) constexpr int8_t kE2m1Table[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

alignas(16) constexpr int8_t kIq1Table[16] = {-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7};
alignas(16) constexpr int8_t kIq2Table[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43};
alignas(16) constexpr int8_t kIq3XxsTable[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                                 -4, -12, -20, -28, -36, -44, -52, -62};
alignas(16) constexpr int8_t kIq3STable[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                               -1, -3, -5, -7, -9, -11, -13, -15};

template <Table table>
inline Bytes decode(Bytes nibbles) {
  if constexpr (table == Table::none) return nibbles;
  if constexpr (table == Table::iq4) return lookup(kIq4Table, nibbles);
  if constexpr (table == Table::e2m1) return lookup(kE2m1Table, nibbles);
  if constexpr (table == Table::iq1) return lookup(kIq1Table, nibbles);
  if constexpr (table == Table::iq2) return lookup(kIq2Table, nibbles);
  if constexpr (table == Table::iq3_xxs) return lookup(kIq3XxsTable, nibbles);
  if constexpr (table == Table::iq3_s) return lookup(kIq3STable, nibbles);
}

// Vectors 4h..4h+3 of a run of 32 k. `part` is the first byte of the kWidth rows.
template <Format kFormat, int h>
inline void load_codes(const uint8_t* codes, int64_t part, Bytes (&w)[4]) {
  constexpr PanelTraits t = traits(kFormat);
  if constexpr (t.bits == 8) {
    for (int i = 0; i < 4; ++i)
      w[i] = Bytes::load(codes + 64 * (4 * h + i) + part);
    return;
  } else {
    for (int i = 0; i < 2; ++i) {
      const Bytes pair = Bytes::load(codes + 64 * (2 * h + i) + part);
      w[2 * i] = pair & Bytes::all(0x0F);
      w[2 * i + 1] = shift_right<4>(pair) & Bytes::all(0x0F);
    }
    if constexpr (t.bits == 5) {
      const Bytes bits = Bytes::load(codes + 256 + part);
      if constexpr (h == 0) {
        w[0] = w[0] | (shift_left<4>(bits) & Bytes::all(0x10));
        w[1] = w[1] | (shift_left<3>(bits) & Bytes::all(0x10));
        w[2] = w[2] | (shift_left<2>(bits) & Bytes::all(0x10));
        w[3] = w[3] | (shift_left<1>(bits) & Bytes::all(0x10));
      } else {
        w[0] = w[0] | (bits & Bytes::all(0x10));
        w[1] = w[1] | (shift_right<1>(bits) & Bytes::all(0x10));
        w[2] = w[2] | (shift_right<2>(bits) & Bytes::all(0x10));
        w[3] = w[3] | (shift_right<3>(bits) & Bytes::all(0x10));
      }
    }
    if constexpr (t.bits == 6) {
      const Bytes bits = Bytes::load(codes + 256 + 64 * h + part);
      w[0] = w[0] | (shift_left<4>(bits) & Bytes::all(0x30));
      w[1] = w[1] | (shift_left<2>(bits) & Bytes::all(0x30));
      w[2] = w[2] | (bits & Bytes::all(0x30));
      w[3] = w[3] | (shift_right<2>(bits) & Bytes::all(0x30));
    }
    for (int i = 0; i < 4; ++i)
      w[i] = decode<t.table>(w[i]);
  }
}

// Scale and min of a group for kWidth rows; `row` is the first of them. `super` holds the factors
// of both in K formats.
struct GroupScale {
  Vec scale, min;
};
inline const uint16_t* halves(const uint8_t* p, int64_t row) {
  return reinterpret_cast<const uint16_t*>(p) + row;
}
template <Format kFormat>
inline GroupScale load_super(const uint8_t* supers, int64_t row) {
  constexpr PanelTraits t = traits(kFormat);
  GroupScale super = {Vec::load_f16(halves(supers, row)), Vec::zero()};
  if constexpr (t.factor != 1.0F) super.scale = super.scale * Vec::all(t.factor);
  if constexpr (t.scales == Scales::k_min)
    super.min = Vec::zero() - Vec::load_f16(halves(supers + 32, row));
  return super;
}
template <Scales kScales>
inline GroupScale load_scale(const uint8_t* scales, const GroupScale& super, int64_t row) {
  if constexpr (kScales == Scales::f16) return {Vec::load_f16(halves(scales, row)), Vec::zero()};
  if constexpr (kScales == Scales::f16_min)
    return {Vec::load_f16(halves(scales, row)), Vec::load_f16(halves(scales + 32, row))};
  if constexpr (kScales == Scales::bf16_min)
    return {Vec::load_bf16(halves(scales, row)), Vec::load_bf16(halves(scales + 32, row))};
  if constexpr (kScales == Scales::f32_min) {
    const auto* numbers = reinterpret_cast<const float*>(scales) + row;
    return {Vec::load(numbers), Vec::load(numbers + kPanelRows)};
  }
  if constexpr (kScales == Scales::k_min)
    return {super.scale * Vec::load_u8(scales + row), super.min * Vec::load_u8(scales + 16 + row)};
  if constexpr (kScales == Scales::k_signed)
    return {super.scale * Vec::load_i8(scales + row), Vec::zero()};
  if constexpr (kScales == Scales::e8m0) return {Vec::load_e8m0(scales + row), Vec::zero()};
}

// Whether stored codes are signed bytes rather than unsigned below 128.
constexpr bool is_signed(const PanelTraits& t) {
  return t.bits == 8 || t.table != Table::none;
}

constexpr int64_t kPrefetch = 8192;  // bytes ahead

// Adds a half run (16 k from k0) to the integer sums of kRows rows.
template <bool kSigned, int kRows, int kPlanes>
inline void add_half(const Bytes (&w)[4], const uint8_t* const* x, int64_t k0, int64_t low,
                     Ints (&high_sum)[kRows], Ints (&low_sum)[kRows]) {
  for (int i = 0; i < 4; ++i) {
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* at = x[r] + k0 + 4 * i;
      high_sum[r] = dot<kSigned>(high_sum[r], w[i], at);
      if constexpr (kPlanes == 2) low_sum[r] = dot<kSigned>(low_sum[r], w[i], at + low);
    }
  }
}

// One panel (kWidth rows of it, from `row`) times kRows rows of activations.
template <Format kFormat, int kRows, int kPlanes>
inline void panel_rows(const uint8_t* panel, const ActivationLayout& a, int64_t k, int64_t row,
                       const uint8_t* const* x, Vec (&out)[kRows]) {
  constexpr PanelTraits t = traits(kFormat);
  constexpr bool kSigned = is_signed(t);
  // Subtracted from every stored code: the format's own offset, and what dot<signed> leaves in.
  constexpr int kOffset = t.offset + (kSigned ? kSignedBias : 0);
  for (int r = 0; r < kRows; ++r)
    out[r] = Vec::zero();
  const uint8_t* codes = panel;
  const uint8_t* scales = panel;
  const uint8_t* chunk = panel;
  const uint8_t* ahead = panel;
  [[maybe_unused]] GroupScale super = {Vec::zero(), Vec::zero()};
  for (int64_t k0 = 0; k0 < k; k0 += 32) {
    if (k0 % kChunkColumns == 0) {
      constexpr ChunkLayout kWhole = chunk_layout(kFormat, kChunkColumns);
      const ChunkLayout layout = k - k0 < kChunkColumns ? chunk_layout(kFormat, k - k0) : kWhole;
      if constexpr (has_supers(t.scales)) super = load_super<kFormat>(chunk, row);
      scales = chunk + layout.scales;
      codes = chunk + layout.codes;
      ahead = chunk + kPrefetch;
      chunk += layout.bytes;
    }
    Ints high_sum[kRows], low_sum[kRows];
    const auto start = [&](int64_t sums, int64_t index) {
      for (int r = 0; r < kRows; ++r) {
        low_sum[r] = Ints::zero();
        high_sum[r] = Ints::zero();
        if constexpr (kOffset != 0) {
          const auto* sum = reinterpret_cast<const int32_t*>(x[r] + sums) + index;
          (kPlanes == 2 ? low_sum : high_sum)[r] = Ints::all_times(sum, -kOffset);
        }
      }
    };
    const auto finish = [&](int64_t scaled, int64_t index) {
      const GroupScale g = load_scale<t.scales>(scales, super, row);
      scales += scale_bytes(t.scales);
      for (int r = 0; r < kRows; ++r) {
        const auto* scale = reinterpret_cast<const float*>(x[r] + a.scale) + k0 / 32;
        const Ints sum = kPlanes == 2 ? combine(high_sum[r], low_sum[r]) : high_sum[r];
        out[r] = fma(to_float(sum), g.scale * Vec::all(*scale), out[r]);
        if constexpr (has_min(t.scales)) {
          const auto* s = reinterpret_cast<const float*>(x[r] + scaled) + index;
          out[r] = fma(g.min, Vec::all(*s), out[r]);
        }
      }
    };
    // The processor's own prefetch does not keep enough reads in flight beside this arithmetic.
    // Into the second-level cache: the first one has too few buffers for outstanding reads.
    constexpr int64_t kLines = (chunk_layout(kFormat, kChunkColumns).bytes / 8 + 63) / 64;
    for (int i = 0; i < kLines; ++i)
      __builtin_prefetch(ahead + 64 * i, 0, 2);
    ahead += 64 * kLines;
    Bytes w[4];
    if constexpr (t.group == 32) start(a.sum32, k0 / 32);
    if constexpr (t.group == 16) start(a.sum16, k0 / 16);
    load_codes<kFormat, 0>(codes, 4 * row, w);
    add_half<kSigned, kRows, kPlanes>(w, x, k0, a.low, high_sum, low_sum);
    if constexpr (t.group == 16) {
      finish(a.scaled16, k0 / 16);
      start(a.sum16, k0 / 16 + 1);
    }
    load_codes<kFormat, 1>(codes, 4 * row, w);
    add_half<kSigned, kRows, kPlanes>(w, x, k0 + 16, a.low, high_sum, low_sum);
    if constexpr (t.group == 32) finish(a.scaled32, k0 / 32);
    if constexpr (t.group == 16) finish(a.scaled16, k0 / 16 + 1);
    codes += 64 * t.bits;
  }
}

template <Format kFormat, int kRows, int kPlanes>
inline void packed_rows(const PackedLinear& l, const ActivationLayout& a, int64_t tile,
                        int64_t first) {
  const uint8_t* panel = l.panels + (tile - l.panels_tile) * panel_bytes(kFormat, l.k);
  const int64_t n_valid = l.n_out - tile * kPanelRows;
  for (int64_t row = 0; row < kPanelRows; row += kWidth) {
    Vec out[kRows];
    panel_rows<kFormat, kRows, kPlanes>(panel, a, l.k, row, l.x + first, out);
    const int64_t o = tile * kPanelRows + row;
    const int64_t n = n_valid - row < kWidth ? n_valid - row : kWidth;
    if (n <= 0) break;
    const Vec factor = Vec::all(l.scale);
    for (int r = 0; r < kRows; ++r) {
      float* to = l.out[first + r] + o;
      Vec y = out[r];
      if (l.scale != 1.0F) y = y * factor;
      if (n == kWidth) {
        if (l.bias != nullptr) y = y + Vec::load(l.bias + o);
        if (l.accumulate) y = Vec::load(to) + y;
        y.store(to);
      } else {
        if (l.bias != nullptr) y = y + load_plain_part<Plain::f32>(l.bias, o, n);
        if (l.accumulate) y = load_plain_part<Plain::f32>(to, 0, n) + y;
        store_part(y, to, n);
      }
    }
  }
}

// All rows of a call for one panel after another; a panel stays in the cache meanwhile.
template <Format kFormat, int kPlanes>
void packed_linear_planes(const PackedLinear& l) {
  const ActivationLayout a = activation_layout(l.k);
  for (int64_t tile = l.first_tile; tile < l.end_tile; ++tile) {
    int64_t r = 0;
    for (; r + kPackedRows <= l.n_rows; r += kPackedRows)
      packed_rows<kFormat, kPackedRows, kPlanes>(l, a, tile, r);
    for (; r + 4 <= l.n_rows; r += 4)
      packed_rows<kFormat, 4, kPlanes>(l, a, tile, r);
    for (; r + 2 <= l.n_rows; r += 2)
      packed_rows<kFormat, 2, kPlanes>(l, a, tile, r);
    if (r < l.n_rows) packed_rows<kFormat, 1, kPlanes>(l, a, tile, r);
  }
}

template <Format kFormat>
void packed_linear_format(const PackedLinear& l) {
  if (l.planes == 2) {
    packed_linear_planes<kFormat, 2>(l);
  } else {
    packed_linear_planes<kFormat, 1>(l);
  }
}

void packed_linear(const PackedLinear& l) {
  using Function = void (*)(const PackedLinear&);
  static constexpr Function kByFormat[kFormats] = {
      packed_linear_format<Format::q4_0>,        packed_linear_format<Format::q4_1>,
      packed_linear_format<Format::q5_0>,        packed_linear_format<Format::q5_1>,
      packed_linear_format<Format::q8_0>,        packed_linear_format<Format::q4_k>,
      packed_linear_format<Format::q5_k>,        packed_linear_format<Format::q6_k>,
      packed_linear_format<Format::iq4_nl>,      packed_linear_format<Format::iq4_xs>,
      packed_linear_format<Format::mxfp4>,       packed_linear_format<Format::nvfp4>,
      packed_linear_format<Format::q2_k>,        packed_linear_format<Format::q3_k>,
      packed_linear_format<Format::affine4>,     packed_linear_format<Format::affine8>,
      packed_linear_format<Format::affine8_f16>, packed_linear_format<Format::iq1>,
      packed_linear_format<Format::iq2>,         packed_linear_format<Format::iq3_xxs>,
      packed_linear_format<Format::iq3_s>,       packed_linear_format<Format::affine4_f32>,
      packed_linear_format<Format::affine8_f32>};
  kByFormat[static_cast<int>(l.format)](l);
}

// ---- Activations ----

// Part of a record (ActivationLayout) of k floats. The largest magnitude of each 32
// becomes the largest code; a group with NaN or infinity becomes NaN through its scale.
template <int kPlanes>
void quantise_planes(const float* x, int64_t k, int64_t first, int64_t end, uint8_t* record) {
  const ActivationLayout a = activation_layout(k);
  constexpr float kTop = kPlanes == 2 ? 16256.0F : 127.0F;  // 127 * 128
  auto* scale = reinterpret_cast<float*>(record + a.scale);
  auto* sum32 = reinterpret_cast<int32_t*>(record + a.sum32);
  auto* scaled32 = reinterpret_cast<float*>(record + a.scaled32);
  auto* sum16 = reinterpret_cast<int32_t*>(record + a.sum16);
  auto* scaled16 = reinterpret_cast<float*>(record + a.scaled16);
  for (int64_t k0 = first; k0 < end; k0 += 32) {
    Vec largest = Vec::zero();
    Vec poison = Vec::zero();  // NaN where x is NaN or infinite
    for (int64_t i = 0; i < 32; i += kWidth) {
      const Vec v = Vec::load(x + k0 + i);
      largest = max(largest, abs(v));
      poison = fma(v, Vec::zero(), poison);
    }
    const float s = largest.highest() / kTop + poison.sum();
    const Vec inverse = Vec::all(s > 1e-35F ? 1.0F / s : 0.0F);
    float sums[2];  // of 16; whole numbers below 2^24, hence exact
    for (int64_t h = 0; h < 2; ++h) {
      Vec sum = Vec::zero();
      for (int64_t i = 16 * h; i < 16 * h + 16; i += kWidth) {
        const Vec scaled = round(Vec::load(x + k0 + i) * inverse);
        const Vec v = select_less(Vec::all(-2.0F * kTop), scaled, scaled, Vec::zero());  // no NaN
        sum = sum + v;
        const Vec high = kPlanes == 2 ? round(v * Vec::all(1.0F / 128.0F)) : v;
        store_codes(high, record + k0 + i);
        if constexpr (kPlanes == 2)
          store_codes(fma(high, Vec::all(-128.0F), v), record + a.low + k0 + i);
      }
      sums[h] = sum.sum();
      sum16[k0 / 16 + h] = static_cast<int32_t>(sums[h]);
      scaled16[k0 / 16 + h] = s * sums[h];
    }
    scale[k0 / 32] = s;
    sum32[k0 / 32] = static_cast<int32_t>(sums[0] + sums[1]);
    scaled32[k0 / 32] = s * (sums[0] + sums[1]);
  }
}

void quantise(const float* x, int64_t k, int64_t first, int64_t end, int planes, uint8_t* record) {
  if (planes == 2) {
    quantise_planes<2>(x, k, first, end, record);
  } else {
    quantise_planes<1>(x, k, first, end, record);
  }
}
