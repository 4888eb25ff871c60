// The f32 kernels, written once over Vec (isa/vec_*.h). Included inside an anonymous namespace by
// one source file for each instruction set.

constexpr int64_t kWidth = Vec::kWidth;

template <Plain type>
inline Vec load_plain(const void* p, int64_t i) {
  if constexpr (type == Plain::f32) return Vec::load(static_cast<const float*>(p) + i);
  if constexpr (type == Plain::f16) return Vec::load_f16(static_cast<const uint16_t*>(p) + i);
  if constexpr (type == Plain::bf16) return Vec::load_bf16(static_cast<const uint16_t*>(p) + i);
}

// The first n < kWidth elements, then zeros.
template <Plain type>
inline Vec load_plain_part(const void* p, int64_t i, int64_t n) {
  if constexpr (type == Plain::f32) {
    float part[kWidth] = {};
    __builtin_memcpy(part, static_cast<const float*>(p) + i, static_cast<size_t>(n) * 4);
    return Vec::load(part);
  } else {
    uint16_t part[kWidth] = {};
    __builtin_memcpy(part, static_cast<const uint16_t*>(p) + i, static_cast<size_t>(n) * 2);
    return load_plain<type>(part, 0);
  }
}

inline void store_part(Vec v, float* p, int64_t n) {
  float part[kWidth];
  v.store(part);
  __builtin_memcpy(p, part, static_cast<size_t>(n) * 4);
}

// ---- Linear ----

// One accumulator for each (output, row), over k in steps of kWidth.
template <Plain type, int kOuts, int kRows>
inline void linear_block(const PlainLinear& a, int64_t first_out, int64_t first_row) {
  Vec sum[kOuts][kRows];
  const void* w[kOuts];
  const float* x[kRows];
  constexpr int64_t kSize = type == Plain::f32 ? 4 : 2;
  for (int o = 0; o < kOuts; ++o) {
    w[o] = static_cast<const char*>(a.w) + (first_out + o) * a.k * kSize;
    for (int r = 0; r < kRows; ++r)
      sum[o][r] = Vec::zero();
  }
  for (int r = 0; r < kRows; ++r)
    x[r] = a.x + (first_row + r) * a.x_stride;

  int64_t i = 0;
  for (; i + kWidth <= a.k; i += kWidth) {
    Vec xs[kRows];
    for (int r = 0; r < kRows; ++r)
      xs[r] = Vec::load(x[r] + i);
    for (int o = 0; o < kOuts; ++o) {
      const Vec weight = load_plain<type>(w[o], i);
      for (int r = 0; r < kRows; ++r)
        sum[o][r] = fma(weight, xs[r], sum[o][r]);
    }
  }
  if (i < a.k) {
    for (int o = 0; o < kOuts; ++o) {
      const Vec weight = load_plain_part<type>(w[o], i, a.k - i);
      for (int r = 0; r < kRows; ++r)
        sum[o][r] = fma(weight, load_plain_part<Plain::f32>(x[r], i, a.k - i), sum[o][r]);
    }
  }
  for (int o = 0; o < kOuts; ++o) {
    const float bias = a.bias != nullptr ? a.bias[first_out + o] : 0.0F;
    for (int r = 0; r < kRows; ++r) {
      float* out = a.out + (first_row + r) * a.out_stride + first_out + o;
      const float y = sum[o][r].sum() + bias;
      *out = a.accumulate ? *out + y : y;
    }
  }
}

template <Plain type, int kOuts>
inline void linear_rows(const PlainLinear& a, int64_t first_out) {
  int64_t r = 0;
  for (; r + kRowBlock <= a.n_rows; r += kRowBlock)
    linear_block<type, kOuts, kRowBlock>(a, first_out, r);
  for (; r < a.n_rows; ++r)
    linear_block<type, kOuts, 1>(a, first_out, r);
}

template <Plain type>
void linear_typed(const PlainLinear& a) {
  int64_t o = 0;
  for (; o + 4 <= a.n_out; o += 4)
    linear_rows<type, 4>(a, o);
  for (; o < a.n_out; ++o)
    linear_rows<type, 1>(a, o);
}

void linear(const PlainLinear& a) {
  switch (a.type) {
  case Plain::f32: return linear_typed<Plain::f32>(a);
  case Plain::f16: return linear_typed<Plain::f16>(a);
  case Plain::bf16: return linear_typed<Plain::bf16>(a);
  }
}

// ---- Vectors ----

template <Plain type>
float dot_typed(const float* x, const void* y, int64_t n) {
  Vec sum = Vec::zero();
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    sum = fma(load_plain<type>(y, i), Vec::load(x + i), sum);
  if (i < n) {
    sum = fma(load_plain_part<type>(y, i, n - i), load_plain_part<Plain::f32>(x, i, n - i), sum);
  }
  return sum.sum();
}

float dot(const float* x, const void* y, Plain type, int64_t n) {
  switch (type) {
  case Plain::f32: return dot_typed<Plain::f32>(x, y, n);
  case Plain::f16: return dot_typed<Plain::f16>(x, y, n);
  case Plain::bf16: return dot_typed<Plain::bf16>(x, y, n);
  }
  return 0.0F;
}

// ---- Elementwise functions ----

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2; the Taylor series to r^7 has a
// relative error below 6e-9. ln 2 is split so that n * kLn2High is exact (Cody and Waite). The
// power is applied in two halves, so that results run smoothly into 0 and infinity.
inline Vec exp(Vec x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  x = min(Vec::all(89.0F), max(Vec::all(-104.0F), x));
  const Vec n = round(x * Vec::all(kLog2E));
  Vec r = fma(n, Vec::all(-kLn2High), x);
  r = fma(n, Vec::all(-kLn2Low), r);
  Vec p = Vec::all(1.0F / 5040.0F);
  p = fma(p, r, Vec::all(1.0F / 720.0F));
  p = fma(p, r, Vec::all(1.0F / 120.0F));
  p = fma(p, r, Vec::all(1.0F / 24.0F));
  p = fma(p, r, Vec::all(1.0F / 6.0F));
  p = fma(p, r, Vec::all(0.5F));
  p = fma(p, r, Vec::all(1.0F));
  p = fma(p, r, Vec::all(1.0F));
  return scale_by_power(p, n);
}

inline Vec sigmoid(Vec x) {
  const Vec one = Vec::all(1.0F);
  return one / (one + exp(Vec::zero() - x));
}

// (1 - e) / (1 + e) with e = exp(-2 |x|) loses relative precision near 0, where the Taylor series
// of tanh to x^9 is exact to f32.
inline Vec tanh(Vec x) {
  const Vec one = Vec::all(1.0F);
  const Vec magnitude = abs(x);
  const Vec e = exp(magnitude * Vec::all(-2.0F));
  const Vec large = copy_sign((one - e) / (one + e), x);
  const Vec square = x * x;
  Vec p = Vec::all(62.0F / 2835.0F);
  p = fma(p, square, Vec::all(-17.0F / 315.0F));
  p = fma(p, square, Vec::all(2.0F / 15.0F));
  p = fma(p, square, Vec::all(-1.0F / 3.0F));
  p = fma(p, square, one);
  return select_less(magnitude, Vec::all(0.25F), x * p, large);
}

// 0.5 (1 + tanh(z)) is sigmoid(2 z), which does not cancel for large negative z.
inline Vec gelu_tanh(Vec x) {
  constexpr float kTwoSqrt2OverPi = 1.59576912F;
  const Vec z = x * fma(x * x, Vec::all(0.044715F * kTwoSqrt2OverPi), Vec::all(kTwoSqrt2OverPi));
  return x * sigmoid(z);
}

template <typename F>
inline void for_each(const float* in, float* out, int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    f(Vec::load(in + i)).store(out + i);
  if (i < n) store_part(f(load_plain_part<Plain::f32>(in, i, n - i)), out + i, n - i);
}

void activate(Function function, const float* in, float* out, int64_t n) {
  switch (function) {
  case Function::silu: return for_each(in, out, n, [](Vec x) { return x * sigmoid(x); });
  case Function::gelu_tanh: return for_each(in, out, n, [](Vec x) { return gelu_tanh(x); });
  case Function::sigmoid: return for_each(in, out, n, [](Vec x) { return sigmoid(x); });
  case Function::tanh: return for_each(in, out, n, [](Vec x) { return tanh(x); });
  case Function::relu_squared:
    return for_each(in, out, n, [](Vec x) {
      const Vec positive = max(Vec::zero(), x);
      return positive * positive;
    });
  case Function::signed_sqrt:
    return for_each(in, out, n,
                    [](Vec x) { return copy_sign(sqrt(max(Vec::all(1e-6F), abs(x))), x); });
  case Function::softplus:
    // Rare and narrow (time steps of recurrences): the C library's function does.
    for (int64_t i = 0; i < n; ++i)
      out[i] = in[i] > 20.0F ? in[i] : __builtin_log1pf(__builtin_expf(in[i]));
    return;
  }
}

void softcap(const float* in, float* out, int64_t n, float cap) {
  const Vec c = Vec::all(cap);
  for_each(in, out, n, [c](Vec x) { return c * tanh(x / c); });
}

float exp_sum(float* x, int64_t n, float shift) {
  const Vec s = Vec::all(shift);
  Vec sum = Vec::zero();
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec e = exp(Vec::load(x + i) - s);
    e.store(x + i);
    sum = sum + e;
  }
  float total = sum.sum();
  if (i < n) {
    store_part(exp(load_plain_part<Plain::f32>(x, i, n - i) - s), x + i, n - i);
    for (; i < n; ++i)
      total += x[i];
  }
  return total;
}
