// The table of kernels that are compiled once per instruction set. Plain structs and pointers only:
// this header is included by units that are compiled with wider instructions than the rest of the
// program, so it must not bring in inline functions that the linker could share with them.
//
// Every kernel computes an output element by an order of operations that depends on its own
// operands only, never on how many rows or outputs one call covers (invariant 1).
#pragma once

#include "backend/cpu/isa/panel.h"

#include <cstdint>

namespace kapitsa::backend::cpu {

enum class Plain : uint8_t { f32, f16, bf16 };
// Cached values. q8: the codes of a head, then an f16 scale for each 32 of them.
enum class Values : uint8_t { f32, f16, bf16, q8 };

enum class Function : uint8_t {
  silu,
  gelu_tanh,
  relu_squared,
  sigmoid,
  softplus,
  tanh,
  signed_sqrt
};

// out[r][o] (+)= sum over i of w[o][i] * x[r][i], + bias[o] where there is one.
struct PlainLinear {
  const void* w = nullptr;  // (n_out, k), row o at o * k
  Plain type = Plain::f32;
  int64_t n_out = 0;
  int64_t k = 0;
  const float* x = nullptr;  // (n_rows, k), row r at r * x_stride
  int64_t x_stride = 0;
  int64_t n_rows = 0;
  const float* bias = nullptr;
  float* out = nullptr;  // (n_rows, n_out), row r at r * out_stride
  int64_t out_stride = 0;
  bool accumulate = false;
};

// out[r][o] (+)= scale * sum over i of w[o][i] * x[r][i] + bias[o], for the outputs of some panels.
struct PackedLinear {
  const uint8_t* panels = nullptr;  // from tile panels_tile on
  int64_t panels_tile = 0;
  Format format = Format::q4_0;
  int64_t n_out = 0;  // outputs of all panels; the last panel may be part empty
  int64_t k = 0;
  int64_t first_tile = 0, end_tile = 0;
  const uint8_t* const* x = nullptr;  // (n_rows) activation records
  int planes = 1;                     // of the records
  int64_t n_rows = 0;
  float scale = 1.0F;
  const float* bias = nullptr;
  float* const* out = nullptr;  // (n_rows), each (n_out)
  bool accumulate = false;
};

// scores[q][i] = q . key i, for 16 keys that lie by element: element d of key i is keys[16 d + i].
struct ScoreTile {
  const float* q = nullptr;  // (n_queries, dim)
  int64_t n_queries = 0;
  int64_t dim = 0;
  const void* keys = nullptr;
  Plain type = Plain::f32;
  float* scores = nullptr;  // (n_queries, 16), row q at q * stride
  int64_t stride = 0;
};

// out[q] += sum over p of weights[q][p] * values[p], p in order.
struct AddValues {
  const float* weights = nullptr;  // (n_queries, n)
  int64_t weight_stride = 0;
  int64_t n_queries = 0;
  const void* const* values = nullptr;  // (n), each (dim)
  Values type = Values::f32;
  int64_t n = 0;
  int64_t dim = 0;
  float* out = nullptr;  // (n_queries, dim)
  int64_t out_stride = 0;
};

inline constexpr int64_t kStateLanes = 16;

// One token of a recurrence over a state S of 16 value elements, n keys each: element i of key j is
// state[16 j + i]. All for each value element:
//   delta = strength * (v - decay * S.k), or strength * v where it does not read;
//   S' = decay * S + delta * k;  out = S'.q + skip * v = decay * S.q + delta * k.q + skip * v.
struct StateStep {
  const float* state = nullptr;
  float* next = nullptr;  // S', may be `state`; nullptr: nobody needs it
  int64_t n = 0;
  int64_t n_lanes = 0;  // value elements that exist, at most 16
  const float* k = nullptr;
  const float* q = nullptr;
  float kq = 0.0F;  // k . q
  float decay = 1.0F, strength = 1.0F, skip = 0.0F;
  bool reads = false;
  const float* v = nullptr;
  float* delta = nullptr;
  float* out = nullptr;
};

// The same recurrence over the n_rows tokens of a chunk at once, from S before the first of them.
// growth[i] is the product of the decays up to token i. With the sums over keys P_i = S.k_i and
// Q_i = S.q_i, for each value element:
//   delta_i = strength_i (v_i - growth_i P_i) - sum over j < i of mix[i][j] delta_j,
//             or strength_i v_i where it does not read;
//   out_i = growth_i Q_i + sum over j <= i of blend[i][j] delta_j + skip v_i;
//   S' = growth_last S + sum over i of delta_i keys_end[i].
// All sums run upwards, so that a token's bits do not depend on how many follow it.
struct StateChunk {
  float* state = nullptr;  // as in StateStep; becomes S'
  int64_t n = 0;
  int64_t n_lanes = 0;
  int64_t n_rows = 0;
  const float* k = nullptr;         // (n_rows, n)
  const float* q = nullptr;         // (n_rows, n)
  const float* keys_end = nullptr;  // (n_rows, n): k_i times the decays after token i
  const float* growth = nullptr;    // (n_rows)
  const float* strength = nullptr;  // (n_rows)
  const float* mix = nullptr;       // (n_rows, stride)
  const float* blend = nullptr;     // (n_rows, stride)
  int64_t stride = 0;
  float skip = 0.0F;
  bool reads = false;
  const float* v = nullptr;  // token i at i * v_stride
  int64_t v_stride = 0;
  float* delta = nullptr;  // (n_rows, 16)
  float* out = nullptr;    // token i at i * out_stride
  int64_t out_stride = 0;
};

// out[c] = bias[c] + sum over j of w[j][c] * x[j][c], j in order.
struct Convolve {
  const float* const* x = nullptr;  // (taps), each (n)
  const float* w = nullptr;         // (taps, n), tap j at j * w_stride
  int64_t w_stride = 0;
  int64_t taps = 0;
  const float* bias = nullptr;
  float* out = nullptr;
  int64_t n = 0;
};

struct Kernels {
  const char* name;  // as force_isa takes it

  void (*linear)(const PlainLinear& args);
  void (*packed_linear)(const PackedLinear& args);
  // Elements first..end-1 (multiples of 32) of a row of k into its activation record.
  void (*quantise)(const float* x, int64_t k, int64_t first, int64_t end, int planes,
                   uint8_t* record);
  float (*dot)(const float* x, const void* y, Plain type, int64_t n);
  void (*score_tile)(const ScoreTile& args);
  void (*add_values)(const AddValues& args);
  void (*step_state)(const StateStep& args);
  // S = decay * S + delta * k, as step_state computes it.
  void (*advance_state)(float* state, int64_t n, int64_t n_lanes, const float* k, float decay,
                        const float* delta);
  void (*chunk_state)(const StateChunk& args);
  void (*convolve)(const Convolve& args);
  float (*largest)(const float* x, int64_t n);  // -infinity where n is 0
  // x = exp(x - shift); returns the sum
  float (*exp_sum)(float* x, int64_t n, float shift);
  void (*activate)(Function function, const float* in, float* out, int64_t n);
  // out = cap * tanh(in / cap)
  void (*softcap)(const float* in, float* out, int64_t n, float cap);
};

// nullptr where the build lacks the instructions, and for x86-64 also where the machine does.
const Kernels* scalar_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();

}  // namespace kapitsa::backend::cpu
