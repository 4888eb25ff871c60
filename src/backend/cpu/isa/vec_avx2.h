// 8 floats in an AVX2 register. Included inside the anonymous namespace of isa/avx2.cpp.

struct Vec {
  static constexpr int64_t kWidth = 8;
  __m256 v;

  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec all(float x) { return {_mm256_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec all_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(*p)))};
  }
  static Vec load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static Vec load_bf16(const uint16_t* p) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  static Vec load_u8(const uint8_t* p) {
    return {_mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
  }
  static Vec load_i8(const uint8_t* p) {
    return {_mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
  }
  // 2^(e - 128); subnormal for e < 2.
  static Vec load_e8m0(const uint8_t* p) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return {_mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small))};
  }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  float highest() const {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    x = _mm_max_ss(x, _mm_movehdup_ps(x));
    return _mm_cvtss_f32(x);
  }
  float sum() const {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    x = _mm_add_ss(x, _mm_movehdup_ps(x));
    return _mm_cvtss_f32(x);
  }
};

inline Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
// A NaN in b stays.
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline Vec sqrt(Vec a) {
  return {_mm256_sqrt_ps(a.v)};
}
inline Vec abs(Vec a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), a.v)};
}
inline Vec round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return {_mm256_or_ps(abs(magnitude).v, _mm256_and_ps(sign.v, _mm256_set1_ps(-0.0F)))};
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
// a * 2^n for whole n within -252..254, in two steps so that both factors are normal numbers.
inline Vec scale_by_power(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  const __m256 first = _mm256_mul_ps(a.v, power(half));
  return {_mm256_mul_ps(first, power(_mm256_sub_epi32(whole, half)))};
}

// Whole numbers within -128..127 as signed bytes.
inline void store_codes(Vec a, uint8_t* p) {
  const __m256i words = _mm256_cvtps_epi32(a.v);
  const __m128i halves =
      _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
}

// 32 bytes: 4 k of 8 rows.
struct Bytes {
  __m256i v;
  static Bytes load(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
  }
  static Bytes all(int x) { return {_mm256_set1_epi8(static_cast<char>(x))}; }
};
inline Bytes operator&(Bytes a, Bytes b) {
  return {_mm256_and_si256(a.v, b.v)};
}
inline Bytes operator|(Bytes a, Bytes b) {
  return {_mm256_or_si256(a.v, b.v)};
}
// Bits that cross into the neighbouring byte are for the caller to mask away.
template <int n>
inline Bytes shift_right(Bytes a) {
  return {_mm256_srli_epi16(a.v, n)};
}
template <int n>
inline Bytes shift_left(Bytes a) {
  return {_mm256_slli_epi16(a.v, n)};
}
inline Bytes lookup(const int8_t* table, Bytes index) {
  const __m128i t = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index.v)};
}

struct Ints {
  __m256i v;
  static Ints zero() { return {_mm256_setzero_si256()}; }
  static Ints all_times(const int32_t* x, int factor) { return {_mm256_set1_epi32(*x * factor)}; }
};
constexpr int kSignedBias = 0;
// sum + w . x over the 4 k of each row. VPMADDUBSW adds two products in 16 bits: 2 * 128 * 127
// fits, so signed weights go in as magnitudes, with their signs moved to x.
template <bool kSigned>
inline Ints dot(Ints sum, Bytes w, const uint8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  __m256i a = _mm256_set1_epi32(four);
  if constexpr (kSigned) {
    a = _mm256_sign_epi8(a, w.v);
    w.v = _mm256_abs_epi8(w.v);
  }
  const __m256i pairs = _mm256_maddubs_epi16(w.v, a);
  return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
}
// 128 * high + low
inline Ints combine(Ints high, Ints low) {
  return {_mm256_add_epi32(_mm256_slli_epi32(high.v, 7), low.v)};
}
inline Vec to_float(Ints a) {
  return {_mm256_cvtepi32_ps(a.v)};
}
