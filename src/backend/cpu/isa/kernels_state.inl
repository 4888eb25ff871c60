// The kernels of layers with a state, written once over Vec (isa/vec_*.h). Included inside an
// anonymous namespace by one source file for each instruction set. Each lane is one element of a
// value or one channel, with a chain of multiply-adds of its own.

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

void convolve(const Convolve& a) {
  for (int64_t c = 0; c < a.n; c += kWidth) {
    const int64_t n = a.n - c;
    Vec sum = a.bias != nullptr ? load_lanes(a.bias + c, n) : Vec::zero();
    for (int64_t j = 0; j < a.taps; ++j)
      sum = fma(load_lanes(a.w + j * a.w_stride + c, n), load_lanes(a.x[j] + c, n), sum);
    store_lanes(sum, a.out + c, n);
  }
}
