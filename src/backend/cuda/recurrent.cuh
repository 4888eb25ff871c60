// What the recurrent ops share: convolution over a path, and the recurrences. Both recurrences have
// one form, row by row of a state matrix:
//   s <- decay * s + gain * key;  out = s . query  (+ skip)
// where the delta rule's gain depends on s. A warp owns one row of one head's matrix and walks the
// rows of a sequence in order; the same two instructions advance the state in prefill, in a tree
// and in a replay, so that all of them give the same bits.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kMaxKeyDim = 256;

struct Memory {
  float* state;  // (state slots, state_width)
  float* tape;   // (tape rows, tape_width)
  int64_t state_width, tape_width;
};

inline Memory memory_of(const Context& context, const plan::Recurrent& memory) {
  const StateView& state = context.state(memory.state);
  const StateView& tape = context.state(memory.tape);
  return {reinterpret_cast<float*>(state.data), reinterpret_cast<float*>(tape.data), state.width,
          tape.width};
}

// The m-th ancestor of a row, itself for 0.
__device__ inline int ancestor(const PassView& pass, int row, int m) {
  if (pass.counts[PassView::kChain] != 0) return row - m;
  for (; m > 0; --m)
    row = pass.parents[row];
  return row;
}

// ---- Convolution ----

struct ConvView {
  const float* in;
  float* out;
  const float* weight;  // (width, taps)
  const float* bias;
  Memory memory;
  int64_t width, in_stride;
  int32_t taps, dilation;
  plan::Activation activation;
};

// Input of the row `back` steps before `row` on its path: in the pass, else in the state, which
// holds the last (taps - 1) * dilation inputs, the oldest first.
__device__ inline float conv_input(const PassView& pass, const ConvView& c, int row, int back,
                                   int64_t channel) {
  const int depth = pass.depth[row];
  if (back <= depth) return c.in[ancestor(pass, row, back) * c.in_stride + channel];
  const int held = (c.taps - 1) * c.dilation;
  const int64_t slot = pass.state_slot[pass.sequences[row]];
  return c.memory.state[slot * c.memory.state_width + (held - (back - depth)) * c.width + channel];
}

// One output; writes the tape of a decode row.
__device__ inline float convolve_one(const PassView& pass, const ConvView& c, int row,
                                     int64_t channel) {
  const float* weight = c.weight + channel * c.taps;
  float sum = c.bias == nullptr ? 0.0F : c.bias[channel];
  for (int j = 0; j < c.taps; ++j)
    sum = fmaf(weight[j], conv_input(pass, c, row, (c.taps - 1 - j) * c.dilation, channel), sum);
  if (pass.counts[PassView::kPrefill] == 0)
    c.memory.tape[row * c.memory.tape_width + channel] = c.in[row * c.in_stride + channel];
  return activate(c.activation, sum);
}

// ---- Recurrences ----

// How one row changes one row of the state.
struct Update {
  float decay, gain;
  const float* key;
};

struct DeltaView {
  HeadsView q, k, v, out;
  const float* decay;
  const float* beta;
  Memory memory;
  bool tiled;

  __host__ __device__ int heads() const { return v.count; }
  __host__ __device__ int rows() const { return v.dim; }
  __host__ __device__ int columns() const { return k.dim; }
  __device__ int key_head(int h) const { return tiled ? h % k.count : h / (v.count / k.count); }
  __device__ const float* key(int row, int h) const {
    return k.base + row * k.row_stride + int64_t{key_head(h)} * k.stride;
  }
  __device__ const float* query(int row, int h) const {
    return q.base + row * q.row_stride + int64_t{key_head(h)} * q.stride;
  }
  __device__ float skip(int, int, int) const { return 0.0F; }
  // `along` is the state's row times the key.
  static constexpr bool kNeedsProduct = true;
  __device__ Update update(int row, int h, int i, float along) const {
    const float value = v.base[row * v.row_stride + int64_t{h} * v.stride + i];
    const float factor = expf(decay[row * v.count + h]);
    return {factor, beta[row * v.count + h] * (value - factor * along), key(row, h)};
  }
  // Tape row: [k (n_k, dk) | delta (n_v, dv) | g (n_v)].
  __device__ float* tape_row(int row) const { return memory.tape + row * memory.tape_width; }
  __device__ float* tape_gain(int row, int h, int i) const {
    return tape_row(row) + k.count * k.dim + h * v.dim + i;
  }
  __device__ Update from_tape(int row, int h, int i) const {
    const float* tape = tape_row(row);
    return {expf(tape[k.count * k.dim + v.count * v.dim + h]), *tape_gain(row, h, i),
            tape + key_head(h) * k.dim};
  }
  // An update of a row of this pass whose gain has been written.
  __device__ Update again(int row, int h, int i) const {
    return {expf(decay[row * v.count + h]), *tape_gain(row, h, i), key(row, h)};
  }
  __device__ void write_tape(int row, int h, int i, const Update& u, int lane) const {
    float* tape = tape_row(row);
    if (lane == 0) *tape_gain(row, h, i) = u.gain;
    if (i != 0) return;
    if (lane == 0) tape[k.count * k.dim + v.count * v.dim + h] = decay[row * v.count + h];
    const bool first = tiled ? h < k.count : h % (v.count / k.count) == 0;
    if (!first) return;
    for (int j = lane; j < k.dim; j += kWarp)
      tape[key_head(h) * k.dim + j] = u.key[j];
  }
};

struct SsmView {
  HeadsView x, b, c, out;
  const float* dt;
  const float* a;
  const float* d;
  Memory memory;

  __host__ __device__ int heads() const { return x.count; }
  __host__ __device__ int rows() const { return x.dim; }
  __host__ __device__ int columns() const { return b.dim; }
  __device__ int group(int h) const { return h / (x.count / b.count); }
  __device__ const float* query(int row, int h) const {
    return c.base + row * c.row_stride + int64_t{group(h)} * c.stride;
  }
  __device__ float input(int row, int h, int i) const {
    return x.base[row * x.row_stride + int64_t{h} * x.stride + i];
  }
  __device__ float skip(int row, int h, int i) const { return d[h] * input(row, h, i); }
  static constexpr bool kNeedsProduct = false;
  __device__ const float* key(int row, int h) const {
    return b.base + row * b.row_stride + int64_t{group(h)} * b.stride;
  }
  __device__ Update update(int row, int h, int i, float) const {
    const float step = dt[row * x.count + h];
    return {expf(step * a[h]), step * input(row, h, i), key(row, h)};
  }
  __device__ Update again(int row, int h, int i) const { return update(row, h, i, 0.0F); }
  // Tape row: [x (heads, p) | dt (heads) | B (groups, n)].
  __device__ Update from_tape(int row, int h, int i) const {
    const float* tape = memory.tape + row * memory.tape_width;
    const float step = tape[x.count * x.dim + h];
    return {expf(step * a[h]), step * tape[h * x.dim + i],
            tape + x.count * (x.dim + 1) + group(h) * b.dim};
  }
  __device__ void write_tape(int row, int h, int i, const Update& u, int lane) const {
    float* tape = memory.tape + row * memory.tape_width;
    if (lane == 0) tape[h * x.dim + i] = input(row, h, i);
    if (i != 0) return;
    if (lane == 0) tape[x.count * x.dim + h] = dt[row * x.count + h];
    if (h % (x.count / b.count) != 0) return;
    for (int j = lane; j < b.dim; j += kWarp)
      tape[x.count * (x.dim + 1) + group(h) * b.dim + j] = u.key[j];
  }
};

// Launches: the convolution of all rows; the inputs of a prefill pass into the states; the
// recurrences; and the same from tape rows.
void launch_conv(const Context& context, const ConvView& view);
void launch_advance(const Context& context, const ConvView& view);
void launch_recurrence(const Context& context, const DeltaView& view);
void launch_recurrence(const Context& context, const SsmView& view);
void launch_replay(const Context& context, const ConvView& view, const ReplayView& replay);
void launch_replay(const Context& context, const DeltaView& view, const ReplayView& replay);
void launch_replay(const Context& context, const SsmView& view, const ReplayView& replay);

}  // namespace kapitsa::backend::cuda
