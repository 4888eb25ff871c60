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
  static Vec load_f16(const uint16_t* p) {
    return make([p](int i) { return f16_to_f32(p[i]); });
  }
  static Vec load_bf16(const uint16_t* p) {
    return make([p](int i) { return bf16_to_f32(p[i]); });
  }
  void store(float* p) const { __builtin_memcpy(p, v, sizeof v); }
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
