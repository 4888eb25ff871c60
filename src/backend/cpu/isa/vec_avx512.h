// 16 floats in an AVX-512 register. Included inside the anonymous namespace of isa/avx512.cpp.

struct Vec {
  static constexpr int64_t kWidth = 16;
  __m512 v;

  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec all(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec all_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(*p)))};
  }
  static Vec load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static Vec load_bf16(const uint16_t* p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static Vec load_u8(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  static Vec load_i8(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  // 2^(e - 128); subnormal for e < 2.
  static Vec load_e8m0(const uint8_t* p) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return {_mm512_castsi512_ps(_mm512_mask_blend_epi32(is_small, normal, small))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  float highest() const { return _mm512_reduce_max_ps(v); }
  float sum() const {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    x = _mm_add_ss(x, _mm_movehdup_ps(x));
    return _mm_cvtss_f32(x);
  }
};

inline Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
// A NaN in b stays.
inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Vec sqrt(Vec a) {
  return {_mm512_sqrt_ps(a.v)};
}
inline Vec abs(Vec a) {
  return {_mm512_abs_ps(a.v)};
}
inline Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return {_mm512_or_ps(_mm512_abs_ps(magnitude.v), _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0F)))};
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// a * 2^n for whole n.
inline Vec scale_by_power(Vec a, Vec n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}

// Whole numbers within -128..127 as signed bytes.
inline void store_codes(Vec a, uint8_t* p) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

// 64 bytes: 4 k of 16 rows.
struct Bytes {
  __m512i v;
  static Bytes load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  static Bytes all(int x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
};
inline Bytes operator&(Bytes a, Bytes b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline Bytes operator|(Bytes a, Bytes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
// Bits that cross into the neighbouring byte are for the caller to mask away.
template <int n>
inline Bytes shift_right(Bytes a) {
  return {_mm512_srli_epi16(a.v, n)};
}
template <int n>
inline Bytes shift_left(Bytes a) {
  return {_mm512_slli_epi16(a.v, n)};
}
inline Bytes lookup(const int8_t* table, Bytes index) {
  const __m128i t = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index.v)};
}

struct Ints {
  __m512i v;
  static Ints zero() { return {_mm512_setzero_si512()}; }
  static Ints all_times(const int32_t* x, int factor) { return {_mm512_set1_epi32(*x * factor)}; }
};
// VPDPBUSD takes unsigned weights: signed ones get 128 added, and the sum is corrected by the
// caller.
constexpr int kSignedBias = 128;
// sum + w . x over the 4 k of each row.
template <bool kSigned>
inline Ints dot(Ints sum, Bytes w, const uint8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  if constexpr (kSigned) w.v = _mm512_xor_si512(w.v, _mm512_set1_epi8(static_cast<char>(0x80)));
  return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(four))};
}
// 128 * high + low
inline Ints combine(Ints high, Ints low) {
  return {_mm512_add_epi32(_mm512_slli_epi32(high.v, 7), low.v)};
}
inline Vec to_float(Ints a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
