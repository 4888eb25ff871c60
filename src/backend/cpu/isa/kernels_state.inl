// The kernels of layers with a state, written once over Vec (isa/vec_*.h). Included inside an
// anonymous namespace by one source file for each instruction set. Each lane is one element of a
// value or one channel, with a chain of multiply-adds of its own.

// Tokens of a chunk whose chains run side by side.
constexpr int kStateRows = 4;

inline Vec load_lanes(const float* p, int64_t n) {
  return n >= kWidth ? Vec::load(p) : load_plain_part<Plain::f32>(p, 0, n);
}
inline void store_lanes(Vec v, float* p, int64_t n) {
  if (n >= kWidth) {
    v.store(p);
  } else {
    store_part(v, p, n);
  }
}

// S'[j] = decay S[j] + delta k[j] for kWidth lanes. The one place where a state changes, so that a
// replay writes the bits that the row itself went on from.
inline void advance_lanes(const float* state, float* next, int64_t n, const float* k, Vec decay,
                          Vec delta) {
  for (int64_t j = 0; j < n; ++j)
    fma(delta, Vec::all(k[j]), decay * Vec::load(state + kStateLanes * j))
        .store(next + kStateLanes * j);
}

// S . k and S . q in one reading of S, each in four interleaved chains.
template <bool kReads>
inline void step_lanes(const StateStep& a, int64_t first) {
  const float* state = a.state + first;
  Vec read[4], out[4];
  for (int i = 0; i < 4; ++i)
    read[i] = out[i] = Vec::zero();
  const auto add = [&](int64_t j, int i) {
    const Vec s = Vec::load(state + kStateLanes * j);
    if constexpr (kReads) read[i] = fma(s, Vec::all(a.k[j]), read[i]);
    out[i] = fma(s, Vec::all(a.q[j]), out[i]);
  };
  int64_t j = 0;
  for (; j + 4 <= a.n; j += 4) {
    for (int i = 0; i < 4; ++i)
      add(j + i, i);
  }
  for (int i = 0; j < a.n; ++j, ++i)
    add(j, i);

  const int64_t n_lanes = a.n_lanes - first;
  const Vec decay = Vec::all(a.decay);
  const Vec v = load_lanes(a.v + first, n_lanes);
  Vec delta = v;
  if constexpr (kReads) delta = v - decay * ((read[0] + read[1]) + (read[2] + read[3]));
  delta = Vec::all(a.strength) * delta;
  store_lanes(delta, a.delta + first, n_lanes);
  Vec y = decay * ((out[0] + out[1]) + (out[2] + out[3]));
  y = fma(delta, Vec::all(a.kq), y);
  if (a.skip != 0.0F) y = fma(Vec::all(a.skip), v, y);
  store_lanes(y, a.out + first, n_lanes);
  if (a.next != nullptr) advance_lanes(state, a.next + first, a.n, a.k, decay, delta);
}

void step_state(const StateStep& a) {
  for (int64_t first = 0; first < a.n_lanes; first += kWidth) {
    if (a.reads) {
      step_lanes<true>(a, first);
    } else {
      step_lanes<false>(a, first);
    }
  }
}

void advance_state(float* state, int64_t n, int64_t n_lanes, const float* k, float decay,
                   const float* delta) {
  for (int64_t first = 0; first < n_lanes; first += kWidth)
    advance_lanes(state + first, state + first, n, k, Vec::all(decay),
                  load_lanes(delta + first, n_lanes - first));
}

// Tokens r0 .. r0 + kRows - 1 of a chunk for kWidth lanes: their deltas and outputs.
template <bool kReads, int kRows>
inline void chunk_rows(const StateChunk& a, int64_t first, int64_t r0) {
  const float* state = a.state + first;
  const float* k = a.k + r0 * a.n;
  const float* q = a.q + r0 * a.n;
  Vec delta[kRows], out[kRows];
  for (int r = 0; r < kRows; ++r)
    delta[r] = out[r] = Vec::zero();
  for (int64_t j = 0; j < a.n; ++j) {
    const Vec s = Vec::load(state + kStateLanes * j);
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kReads) delta[r] = fma(s, Vec::all(k[r * a.n + j]), delta[r]);
      out[r] = fma(s, Vec::all(q[r * a.n + j]), out[r]);
    }
  }
  const int64_t n_lanes = a.n_lanes - first;
  const auto value = [&](int r) {
    return load_lanes(a.v + (r0 + r) * a.v_stride + first, n_lanes);
  };
  for (int r = 0; r < kRows; ++r) {
    const Vec growth = Vec::all(a.growth[r0 + r]);
    const Vec rest = kReads ? value(r) - growth * delta[r] : value(r);
    delta[r] = Vec::all(a.strength[r0 + r]) * rest;
    out[r] = growth * out[r];
  }
  const float* mix = a.mix + r0 * a.stride;
  const float* blend = a.blend + r0 * a.stride;
  const auto add = [&](Vec before, int64_t j, int r) {
    if constexpr (kReads) delta[r] = fma(before, Vec::all(-mix[r * a.stride + j]), delta[r]);
    out[r] = fma(before, Vec::all(blend[r * a.stride + j]), out[r]);
  };
  for (int64_t j = 0; j < r0; ++j) {
    const Vec before = Vec::load(a.delta + kStateLanes * j + first);
    for (int r = 0; r < kRows; ++r)
      add(before, j, r);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int later = r + 1; later < kRows; ++later)
      add(delta[r], r0 + r, later);
    delta[r].store(a.delta + kStateLanes * (r0 + r) + first);
    Vec y = fma(delta[r], Vec::all(blend[r * a.stride + r0 + r]), out[r]);
    if (a.skip != 0.0F) y = fma(Vec::all(a.skip), value(r), y);
    store_lanes(y, a.out + (r0 + r) * a.out_stride + first, n_lanes);
  }
}

// S' for kKeys keys from key j on.
template <int kKeys>
inline void chunk_keys(const StateChunk& a, int64_t first, int64_t j) {
  float* state = a.state + kStateLanes * j + first;
  const Vec decay = Vec::all(a.growth[a.n_rows - 1]);
  Vec s[kKeys];
  for (int i = 0; i < kKeys; ++i)
    s[i] = decay * Vec::load(state + kStateLanes * i);
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const Vec delta = Vec::load(a.delta + kStateLanes * r + first);
    const float* keys = a.keys_end + r * a.n + j;
    for (int i = 0; i < kKeys; ++i)
      s[i] = fma(delta, Vec::all(keys[i]), s[i]);
  }
  for (int i = 0; i < kKeys; ++i)
    s[i].store(state + kStateLanes * i);
}

template <bool kReads>
inline void chunk_lanes(const StateChunk& a, int64_t first) {
  int64_t r = 0;
  for (; r + kStateRows <= a.n_rows; r += kStateRows)
    chunk_rows<kReads, kStateRows>(a, first, r);
  for (; r < a.n_rows; ++r)
    chunk_rows<kReads, 1>(a, first, r);
  int64_t j = 0;
  for (; j + 8 <= a.n; j += 8)
    chunk_keys<8>(a, first, j);
  for (; j < a.n; ++j)
    chunk_keys<1>(a, first, j);
}

void chunk_state(const StateChunk& a) {
  for (int64_t first = 0; first < a.n_lanes; first += kWidth) {
    if (a.reads) {
      chunk_lanes<true>(a, first);
    } else {
      chunk_lanes<false>(a, first);
    }
  }
}

void convolve(const Convolve& a) {
  for (int64_t c = 0; c < a.n; c += kWidth) {
    const int64_t n = a.n - c;
    Vec sum = a.bias != nullptr ? load_lanes(a.bias + c, n) : Vec::zero();
    for (int64_t j = 0; j < a.taps; ++j)
      sum = fma(load_lanes(a.w + j * a.w_stride + c, n), load_lanes(a.x[j] + c, n), sum);
    store_lanes(sum, a.out + c, n);
  }
}
