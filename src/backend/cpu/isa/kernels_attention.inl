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

template <Plain type>
void score_typed(const ScoreTile& a) {
  int64_t q = 0;
  for (; q + kScoreQueries <= a.n_queries; q += kScoreQueries)
    score_block<type, kScoreQueries>(a, q);
  for (; q + 2 <= a.n_queries; q += 2)
    score_block<type, 2>(a, q);
  if (q < a.n_queries) score_block<type, 1>(a, q);
}

void score_tile(const ScoreTile& a) {
  switch (a.type) {
  case Plain::f32: return score_typed<Plain::f32>(a);
  case Plain::f16: return score_typed<Plain::f16>(a);
  case Plain::bf16: return score_typed<Plain::bf16>(a);
  }
}

// kVecs vectors of the values, from element d on.
template <Plain type, int kQueries, int kVecs>
inline void add_values_block(const AddValues& a, int64_t first, int64_t d) {
  Vec sum[kQueries][kVecs];
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kVecs; ++i)
      sum[q][i] = Vec::load(a.out + (first + q) * a.out_stride + d + i * kWidth);
  }
  const float* weights = a.weights + first * a.weight_stride;
  for (int64_t p = 0; p < a.n; ++p) {
    Vec v[kVecs];
    for (int i = 0; i < kVecs; ++i)
      v[i] = load_plain<type>(a.values[p], d + i * kWidth);
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

// The last elements of a dim that is no multiple of kWidth.
template <Plain type>
inline void add_values_tail(const AddValues& a, int64_t q, int64_t d) {
  const int64_t n = a.dim - d;
  float* out = a.out + q * a.out_stride + d;
  Vec sum = load_plain_part<Plain::f32>(out, 0, n);
  for (int64_t p = 0; p < a.n; ++p)
    sum = fma(Vec::all(a.weights[q * a.weight_stride + p]),
              load_plain_part<type>(a.values[p], d, n), sum);
  store_part(sum, out, n);
}

template <Plain type, int kQueries>
inline void add_values_queries(const AddValues& a, int64_t first) {
  int64_t d = 0;
  for (; d + 4 * kWidth <= a.dim; d += 4 * kWidth)
    add_values_block<type, kQueries, 4>(a, first, d);
  for (; d + kWidth <= a.dim; d += kWidth)
    add_values_block<type, kQueries, 1>(a, first, d);
  for (int q = 0; d < a.dim && q < kQueries; ++q)
    add_values_tail<type>(a, first + q, d);
}

template <Plain type>
void add_values_typed(const AddValues& a) {
  int64_t q = 0;
  for (; q + kValueQueries <= a.n_queries; q += kValueQueries)
    add_values_queries<type, kValueQueries>(a, q);
  for (; q < a.n_queries; ++q)
    add_values_queries<type, 1>(a, q);
}

void add_values(const AddValues& a) {
  switch (a.type) {
  case Plain::f32: return add_values_typed<Plain::f32>(a);
  case Plain::f16: return add_values_typed<Plain::f16>(a);
  case Plain::bf16: return add_values_typed<Plain::bf16>(a);
  }
}

float largest(const float* x, int64_t n) {
  Vec top = Vec::all(-__builtin_inff());
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    top = max(Vec::load(x + i), top);
  float lanes[kWidth];
  top.store(lanes);
  float best = lanes[0];
  for (int64_t lane = 1; lane < kWidth; ++lane)
    best = lanes[lane] > best ? lanes[lane] : best;
  for (; i < n; ++i)
    best = x[i] > best ? x[i] : best;
  return best;
}
