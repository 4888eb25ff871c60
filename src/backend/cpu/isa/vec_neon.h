// 4 floats in a NEON register. Included inside the anonymous namespace of isa/neon.cpp.

struct Vec {
  static constexpr int64_t kWidth = 4;
  float32x4_t v;

  static Vec zero() { return {vdupq_n_f32(0.0F)}; }
  static Vec all(float x) { return {vdupq_n_f32(x)}; }
  static Vec load(const float* p) { return {vld1q_f32(p)}; }
  static Vec all_f16(const uint16_t* p) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(*p)))};
  }
  static Vec load_f16(const uint16_t* p) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))};
  }
  static Vec load_bf16(const uint16_t* p) {
    return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))};
  }
  static Vec load_u8(const uint8_t* p) {
    return make(p, [](uint8_t x) { return static_cast<float>(x); });
  }
  static Vec load_i8(const uint8_t* p) {
    return make(p, [](uint8_t x) { return static_cast<float>(static_cast<int8_t>(x)); });
  }
  // 2^(e - 128); subnormal for e < 2.
  static Vec load_e8m0(const uint8_t* p) {
    return make(p, [](uint8_t e) {
      const uint32_t bits = e < 2 ? 0x00200000U << e : static_cast<uint32_t>(e - 1) << 23;
      return __builtin_bit_cast(float, bits);
    });
  }
  template <typename F>
  static Vec make(const uint8_t* p, F&& f) {
    const float four[4] = {f(p[0]), f(p[1]), f(p[2]), f(p[3])};
    return load(four);
  }
  void store(float* p) const { vst1q_f32(p, v); }
  float highest() const { return vmaxvq_f32(v); }
  float sum() const { return vaddvq_f32(v); }
};

inline Vec operator+(Vec a, Vec b) {
  return {vaddq_f32(a.v, b.v)};
}
inline Vec operator-(Vec a, Vec b) {
  return {vsubq_f32(a.v, b.v)};
}
inline Vec operator*(Vec a, Vec b) {
  return {vmulq_f32(a.v, b.v)};
}
inline Vec operator/(Vec a, Vec b) {
  return {vdivq_f32(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.v, a.v, b.v)};
}
inline Vec min(Vec a, Vec b) {
  return {vminq_f32(a.v, b.v)};
}
inline Vec max(Vec a, Vec b) {
  return {vmaxq_f32(a.v, b.v)};
}
inline Vec sqrt(Vec a) {
  return {vsqrtq_f32(a.v)};
}
inline Vec abs(Vec a) {
  return {vabsq_f32(a.v)};
}
inline Vec round(Vec a) {
  return {vrndnq_f32(a.v)};
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return {vbslq_f32(vdupq_n_u32(0x80000000U), sign.v, magnitude.v)};
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), yes.v, no.v)};
}
// a * 2^n for whole n within -252..254, in two steps so that both factors are normal numbers.
inline Vec scale_by_power(Vec a, Vec n) {
  const int32x4_t whole = vcvtq_s32_f32(n.v);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  const auto power = [](int32x4_t e) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
  };
  return {vmulq_f32(vmulq_f32(a.v, power(half)), power(vsubq_s32(whole, half)))};
}

// Whole numbers within -128..127 as signed bytes.
inline void store_codes(Vec a, uint8_t* p) {
  const int16x4_t halves = vmovn_s32(vcvtq_s32_f32(a.v));
  const int8x8_t bytes = vmovn_s16(vcombine_s16(halves, halves));
  __builtin_memcpy(p, &bytes, 4);
}

// 16 bytes: 4 k of 4 rows.
struct Bytes {
  uint8x16_t v;
  static Bytes load(const uint8_t* p) { return {vld1q_u8(p)}; }
  static Bytes all(int x) { return {vdupq_n_u8(static_cast<uint8_t>(x))}; }
};
inline Bytes operator&(Bytes a, Bytes b) {
  return {vandq_u8(a.v, b.v)};
}
inline Bytes operator|(Bytes a, Bytes b) {
  return {vorrq_u8(a.v, b.v)};
}
template <int n>
inline Bytes shift_right(Bytes a) {
  return {vshrq_n_u8(a.v, n)};
}
template <int n>
inline Bytes shift_left(Bytes a) {
  return {vshlq_n_u8(a.v, n)};
}
inline Bytes lookup(const int8_t* table, Bytes index) {
  return {vreinterpretq_u8_s8(vqtbl1q_s8(vld1q_s8(table), index.v))};
}

struct Ints {
  int32x4_t v;
  static Ints zero() { return {vdupq_n_s32(0)}; }
  static Ints all_times(const int32_t* x, int factor) { return {vdupq_n_s32(*x * factor)}; }
};
constexpr int kSignedBias = 0;
// sum + w . x over the 4 k of each row; unsigned codes are below 128, hence good signed ones.
template <bool kSigned>
inline Ints dot(Ints sum, Bytes w, const uint8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  const int8x16_t a = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return {vdotq_s32(sum.v, vreinterpretq_s8_u8(w.v), a)};
}
// 128 * high + low
inline Ints combine(Ints high, Ints low) {
  return {vaddq_s32(vshlq_n_s32(high.v, 7), low.v)};
}
inline Vec to_float(Ints a) {
  return {vcvtq_f32_s32(a.v)};
}
