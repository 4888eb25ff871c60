// The attention kernels, written once over Vec (isa/vec_*.h). Included inside an anonymous
// namespace by one source file for each instruction set. Each (query, position) score and each
// (query, element) of the output is one chain of multiply-adds, whatever other queries a call has.

constexpr int kTileVecs = 16 / kWidth;  // vectors in 16 positions

template <Plain type, int kQueries>
inline void score_block(const ScoreTile& a, int64_t first) {
  Vec sum[kQueries][kTileVecs];
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kTileVecs; ++i)
      sum[q][i] = Vec::zero();
  }
  const float* query = a.q + first * a.dim;
  for (int64_t d = 0; d < a.dim; ++d) {
    Vec k[kTileVecs];
    for (int i = 0; i < kTileVecs; ++i)
      k[i] = load_plain<type>(a.keys, d * 16 + i * kWidth);
    for (int q = 0; q < kQueries; ++q) {
      const Vec x = Vec::all(query[q * a.dim + d]);
      for (int i = 0; i < kTileVecs; ++i)
        sum[q][i] = fma(x, k[i], sum[q][i]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kTileVecs; ++i)
      sum[q][i].store(a.scores + (first + q) * a.stride + i * kWidth);
  }
}

// The last queries, at most kMost, in one block.
template <Plain type, int kMost>
inline void score_rest(const ScoreTile& a, int64_t first) {
  if (a.n_queries - first == kMost) return score_block<type, kMost>(a, first);
  if constexpr (kMost > 1) score_rest<type, kMost - 1>(a, first);
}

template <Plain type>
void score_typed(const ScoreTile& a) {
  int64_t q = 0;
  for (; q + kScoreQueries <= a.n_queries; q += kScoreQueries)
    score_block<type, kScoreQueries>(a, q);
  score_rest<type, kScoreQueries - 1>(a, q);
}

void score_tile(const ScoreTile& a) {
  switch (a.type) {
  case Plain::f32: return score_typed<Plain::f32>(a);
  case Plain::f16: return score_typed<Plain::f16>(a);
  case Plain::bf16: return score_typed<Plain::bf16>(a);
  }
}

constexpr Plain plain_of(Values type) {
  return type == Values::f16 ? Plain::f16 : type == Values::bf16 ? Plain::bf16 : Plain::f32;
}

// kVecs vectors of a value, from element d on.
template <Values type, int kVecs>
inline void load_value(const void* value, int64_t dim, int64_t d, Vec (&v)[kVecs]) {
  if constexpr (type == Values::q8) {
    const auto* codes = static_cast<const uint8_t*>(value);
    const auto* scales = reinterpret_cast<const uint16_t*>(codes + dim);
    Vec scale = Vec::all_f16(scales + d / 32);
    for (int i = 0; i < kVecs; ++i) {
      if (i > 0 && i * kWidth % 32 == 0) scale = Vec::all_f16(scales + (d + i * kWidth) / 32);
      v[i] = scale * Vec::load_i8(codes + d + i * kWidth);
    }
  } else {
    for (int i = 0; i < kVecs; ++i)
      v[i] = load_plain<plain_of(type)>(value, d + i * kWidth);
  }
}

template <Values type, int kQueries, int kVecs>
inline void add_values_block(const AddValues& a, int64_t first, int64_t d) {
  Vec sum[kQueries][kVecs];
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kVecs; ++i)
      sum[q][i] = Vec::load(a.out + (first + q) * a.out_stride + d + i * kWidth);
  }
  const float* weights = a.weights + first * a.weight_stride;
  for (int64_t p = 0; p < a.n; ++p) {
    Vec v[kVecs];
    load_value<type>(a.values[p], a.dim, d, v);
    for (int q = 0; q < kQueries; ++q) {
      const Vec x = Vec::all(weights[q * a.weight_stride + p]);
      for (int i = 0; i < kVecs; ++i)
        sum[q][i] = fma(x, v[i], sum[q][i]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kVecs; ++i)
      sum[q][i].store(a.out + (first + q) * a.out_stride + d + i * kWidth);
  }
}

// The last elements of a dim that is no multiple of kWidth; blocks of 32 leave none.
template <Values type>
inline void add_values_tail(const AddValues& a, int64_t q, int64_t d) {
  const int64_t n = a.dim - d;
  float* out = a.out + q * a.out_stride + d;
  Vec sum = load_plain_part<Plain::f32>(out, 0, n);
  for (int64_t p = 0; p < a.n; ++p)
    sum = fma(Vec::all(a.weights[q * a.weight_stride + p]),
              load_plain_part<plain_of(type)>(a.values[p], d, n), sum);
  store_part(sum, out, n);
}

template <Values type, int kQueries>
inline void add_values_queries(const AddValues& a, int64_t first) {
  int64_t d = 0;
  for (; d + 4 * kWidth <= a.dim; d += 4 * kWidth)
    add_values_block<type, kQueries, 4>(a, first, d);
  for (; d + kWidth <= a.dim; d += kWidth)
    add_values_block<type, kQueries, 1>(a, first, d);
  if constexpr (type != Values::q8) {
    for (int q = 0; d < a.dim && q < kQueries; ++q)
      add_values_tail<type>(a, first + q, d);
  }
}

template <Values type, int kMost>
inline void add_values_rest(const AddValues& a, int64_t first) {
  if (a.n_queries - first == kMost) return add_values_queries<type, kMost>(a, first);
  if constexpr (kMost > 1) add_values_rest<type, kMost - 1>(a, first);
}

template <Values type>
void add_values_typed(const AddValues& a) {
  int64_t q = 0;
  for (; q + kValueQueries <= a.n_queries; q += kValueQueries)
    add_values_queries<type, kValueQueries>(a, q);
  add_values_rest<type, kValueQueries - 1>(a, q);
}

void add_values(const AddValues& a) {
  switch (a.type) {
  case Values::f32: return add_values_typed<Values::f32>(a);
  case Values::f16: return add_values_typed<Values::f16>(a);
  case Values::bf16: return add_values_typed<Values::bf16>(a);
  case Values::q8: return add_values_typed<Values::q8>(a);
  }
}

float largest(const float* x, int64_t n) {
  Vec top = Vec::all(-__builtin_inff());
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    top = max(Vec::load(x + i), top);
  float best = top.highest();
  for (; i < n; ++i)
    best = x[i] > best ? x[i] : best;
  return best;
}
