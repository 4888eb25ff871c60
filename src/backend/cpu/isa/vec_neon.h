// 4 floats in a NEON register. Included inside the anonymous namespace of isa/neon.cpp.

struct Vec {
  static constexpr int64_t kWidth = 4;
  float32x4_t v;

  static Vec zero() { return {vdupq_n_f32(0.0F)}; }
  static Vec all(float x) { return {vdupq_n_f32(x)}; }
  static Vec load(const float* p) { return {vld1q_f32(p)}; }
  static Vec load_f16(const uint16_t* p) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))};
  }
  static Vec load_bf16(const uint16_t* p) {
    return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))};
  }
  void store(float* p) const { vst1q_f32(p, v); }
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
