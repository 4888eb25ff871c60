// 8 floats in an array: what every machine can do. Included inside the anonymous namespace of
// isa/scalar.cpp. Multiplies and adds are rounded separately.

struct Vec {
  static constexpr int64_t kWidth = 8;
  float v[8];

  template <typename F>
  static Vec make(F&& f) {
    Vec out;
    for (int i = 0; i < 8; ++i)
      out.v[i] = f(i);
    return out;
  }
  static Vec all(float x) {
    return make([x](int) { return x; });
  }
  static Vec zero() { return all(0.0F); }
  static Vec load(const float* p) {
    return make([p](int i) { return p[i]; });
  }
  static Vec all_f16(const uint16_t* p) { return all(f16_to_f32(*p)); }
  static Vec load_f16(const uint16_t* p) {
    return make([p](int i) { return f16_to_f32(p[i]); });
  }
  static Vec load_bf16(const uint16_t* p) {
    return make([p](int i) { return bf16_to_f32(p[i]); });
  }
  static Vec load_u8(const uint8_t* p) {
    return make([p](int i) { return static_cast<float>(p[i]); });
  }
  static Vec load_i8(const uint8_t* p) {
    return make([p](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
  }
  // 2^(e - 128); subnormal for e < 2.
  static Vec load_e8m0(const uint8_t* p) {
    return make([p](int i) {
      const uint32_t bits = p[i] < 2 ? 0x00200000U << p[i] : static_cast<uint32_t>(p[i] - 1) << 23;
      return __builtin_bit_cast(float, bits);
    });
  }
  void store(float* p) const { __builtin_memcpy(p, v, sizeof v); }
  float highest() const {
    float best = v[0];
    for (int i = 1; i < 8; ++i)
      best = v[i] > best ? v[i] : best;
    return best;
  }
  float sum() const { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
};

inline Vec operator+(Vec a, Vec b) {
  return Vec::make([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec operator-(Vec a, Vec b) {
  return Vec::make([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec operator*(Vec a, Vec b) {
  return Vec::make([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec operator/(Vec a, Vec b) {
  return Vec::make([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return Vec::make([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
// A NaN in b stays.
inline Vec min(Vec a, Vec b) {
  return Vec::make([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec max(Vec a, Vec b) {
  return Vec::make([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec sqrt(Vec a) {
  return Vec::make([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
inline Vec abs(Vec a) {
  return Vec::make([&](int i) { return __builtin_fabsf(a.v[i]); });
}
inline Vec round(Vec a) {
  return Vec::make([&](int i) { return __builtin_rintf(a.v[i]); });
}
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return Vec::make([&](int i) { return __builtin_copysignf(magnitude.v[i], sign.v[i]); });
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return Vec::make([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
// a * 2^n for whole n.
inline Vec scale_by_power(Vec a, Vec n) {
  return Vec::make([&](int i) {
    // NaN has no whole part; a is NaN then and stays so.
    return n.v[i] == n.v[i] ? __builtin_ldexpf(a.v[i], static_cast<int>(n.v[i])) : a.v[i];
  });
}

// Whole numbers within -128..127 as signed bytes.
inline void store_codes(Vec a, uint8_t* p) {
  for (int i = 0; i < 8; ++i)
    p[i] = static_cast<uint8_t>(static_cast<int8_t>(a.v[i]));
}

// 32 bytes: 4 k of 8 rows.
struct Bytes {
  uint8_t v[32];
  template <typename F>
  static Bytes make(F&& f) {
    Bytes out;
    for (int i = 0; i < 32; ++i)
      out.v[i] = static_cast<uint8_t>(f(i));
    return out;
  }
  static Bytes load(const uint8_t* p) {
    return make([p](int i) { return p[i]; });
  }
  static Bytes all(int x) {
    return make([x](int) { return x; });
  }
};
inline Bytes operator&(Bytes a, Bytes b) {
  return Bytes::make([&](int i) { return a.v[i] & b.v[i]; });
}
inline Bytes operator|(Bytes a, Bytes b) {
  return Bytes::make([&](int i) { return a.v[i] | b.v[i]; });
}
template <int n>
inline Bytes shift_right(Bytes a) {
  return Bytes::make([&](int i) { return a.v[i] >> n; });
}
template <int n>
inline Bytes shift_left(Bytes a) {
  return Bytes::make([&](int i) { return a.v[i] << n; });
}
inline Bytes lookup(const int8_t* table, Bytes index) {
  return Bytes::make([&](int i) { return table[index.v[i]]; });
}

struct Ints {
  int32_t v[8];
  template <typename F>
  static Ints make(F&& f) {
    Ints out;
    for (int i = 0; i < 8; ++i)
      out.v[i] = f(i);
    return out;
  }
  static Ints zero() {
    return make([](int) { return 0; });
  }
  static Ints all_times(const int32_t* x, int factor) {
    return make([&](int) { return *x * factor; });
  }
};
constexpr int kSignedBias = 0;
// sum + w . x over the 4 k of each row; unsigned codes are below 128, hence good signed ones.
template <bool kSigned>
inline Ints dot(Ints sum, Bytes w, const uint8_t* x) {
  return Ints::make([&](int row) {
    int32_t total = sum.v[row];
    for (int i = 0; i < 4; ++i)
      total += static_cast<int8_t>(w.v[4 * row + i]) * static_cast<int8_t>(x[i]);
    return total;
  });
}
// 128 * high + low
inline Ints combine(Ints high, Ints low) {
  return Ints::make([&](int i) { return high.v[i] * 128 + low.v[i]; });
}
inline Vec to_float(Ints a) {
  return Vec::make([&](int i) { return static_cast<float>(a.v[i]); });
}
