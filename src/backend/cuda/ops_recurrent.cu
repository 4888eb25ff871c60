// Layers with a state per sequence. Both recurrences have one form, row by row of a state matrix:
//   s <- decay * s + gain * key;  out = s . query  (+ skip)
// where the delta rule's gain depends on s. A warp owns one row of one head's matrix and walks the
// rows of a sequence in order; the same two instructions advance the state in prefill, in a tree
// and in a replay, so that all of them give the same bits.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxKeyDim = 256;

struct Memory {
  float* state;  // (state slots, state_width)
  float* tape;   // (tape rows, tape_width)
  int64_t state_width, tape_width;
};

Memory memory_of(const Context& context, const plan::Recurrent& memory) {
  const StateView& state = context.state(memory.state);
  const StateView& tape = context.state(memory.tape);
  return {reinterpret_cast<float*>(state.data), reinterpret_cast<float*>(tape.data), state.width,
          tape.width};
}

// The m-th ancestor of a row, itself for 0.
__device__ int ancestor(const PassView& pass, int row, int m) {
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
  int64_t width;
  int32_t taps, dilation;
  plan::Activation activation;
};

// Input of the row `back` steps before `row` on its path: in the pass, else in the state, which
// holds the last (taps - 1) * dilation inputs, the oldest first.
__device__ float conv_input(const PassView& pass, const ConvView& c, int row, int back,
                            int64_t channel) {
  const int depth = pass.depth[row];
  if (back <= depth) return c.in[ancestor(pass, row, back) * c.width + channel];
  const int held = (c.taps - 1) * c.dilation;
  const int64_t slot = pass.state_slot[pass.sequences[row]];
  return c.memory.state[slot * c.memory.state_width + (held - (back - depth)) * c.width + channel];
}

__global__ void convolve(PassView pass, ConvView c) {
  const int row = static_cast<int>(blockIdx.y);
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= pass.counts[PassView::kRows] || channel >= c.width) return;
  const float* weight = c.weight + channel * c.taps;
  float sum = c.bias == nullptr ? 0.0F : c.bias[channel];
  for (int j = 0; j < c.taps; ++j)
    sum = fmaf(weight[j], conv_input(pass, c, row, (c.taps - 1 - j) * c.dilation, channel), sum);
  c.out[row * c.width + channel] = activate(c.activation, sum);
  if (pass.counts[PassView::kPrefill] == 0)
    c.memory.tape[row * c.memory.tape_width + channel] = c.in[row * c.width + channel];
}

// Appends n inputs to the state of a sequence; input(i) is the i-th of them.
template <typename Input>
__device__ void append_inputs(const ConvView& c, int64_t slot, int64_t channel, int n,
                              Input input) {
  const int held = (c.taps - 1) * c.dilation;
  float* state = c.memory.state + slot * c.memory.state_width + channel;
  // Rising order reads an entry before it is written.
  for (int i = 0; i < held; ++i)
    state[i * c.width] = i + n < held ? state[(i + n) * c.width] : input(i + n - held);
}

__global__ void advance_conv(PassView pass, ConvView c) {
  const int view = static_cast<int>(blockIdx.y);
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (view >= pass.counts[PassView::kViews] || channel >= c.width) return;
  const int first = pass.first_row[view];
  const int n = pass.end_row[view] - first;
  if (n <= 0) return;
  append_inputs(c, pass.state_slot[view], channel, n,
                [&](int i) { return c.in[(first + i) * c.width + channel]; });
}

__global__ void replay_conv(ConvView c, ReplayView replay) {
  const int slot = static_cast<int>(blockIdx.y);
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= c.width || replay.count[slot] == 0) return;
  const int32_t* rows = replay.rows + replay.first[slot];
  append_inputs(c, replay.state_slot[slot], channel, replay.count[slot],
                [&](int i) { return c.memory.tape[rows[i] * c.memory.tape_width + channel]; });
}

ConvView view_of(const Context& context, const plan::CausalConv& op) {
  return {context.f32(op.in),
          context.f32(op.out),
          context.vector(op.weight),
          context.vector(op.bias),
          memory_of(context, op.memory),
          context.width(op.in),
          op.taps,
          op.dilation,
          op.activation};
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

  __device__ int heads() const { return v.count; }
  __device__ int rows() const { return v.dim; }
  __device__ int columns() const { return k.dim; }
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

  __device__ int heads() const { return x.count; }
  __device__ int rows() const { return x.dim; }
  __device__ int columns() const { return b.dim; }
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

// One row of the state, spread over a warp: lane l holds elements l, l + 32, ...
template <int kParts>
struct StateRow {
  float s[kParts];
  int columns, lane;

  __device__ void load(const float* from) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      s[p] = lane + p * kWarp < columns ? from[lane + p * kWarp] : 0.0F;
  }
  __device__ void store(float* to) const {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (lane + p * kWarp < columns) to[lane + p * kWarp] = s[p];
    }
  }
  __device__ float dot(const float* x) const {
    float sum = 0.0F;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (lane + p * kWarp < columns) sum = fmaf(s[p], x[lane + p * kWarp], sum);
    }
    return warp_sum(sum);
  }
  __device__ void advance(const Update& u) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (lane + p * kWarp < columns)
        s[p] = __fmaf_rn(u.gain, u.key[lane + p * kWarp], __fmul_rn(u.decay, s[p]));
    }
  }
};

// blockIdx.x counts (head, row of its state) by warps, blockIdx.y sequences.
template <typename View, int kParts>
__global__ void recur(PassView pass, View view) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int sequence = static_cast<int>(blockIdx.y);
  const int h = index / view.rows();
  const int i = index % view.rows();
  if (sequence >= pass.counts[PassView::kViews] || h >= view.heads()) return;
  const bool prefill = pass.counts[PassView::kPrefill] != 0;
  float* committed = view.memory.state + pass.state_slot[sequence] * view.memory.state_width +
                     int64_t{index} * view.columns();
  StateRow<kParts> start = {.s = {}, .columns = view.columns(), .lane = lane};
  start.load(committed);
  StateRow<kParts> state = start;
  const int first = pass.first_row[sequence];
  for (int row = first; row < pass.end_row[sequence]; ++row) {
    const int depth = pass.depth[row];
    // In a chain the state is already that of the parent; in a tree it may be that of a sibling.
    if (row > first && pass.parents[row] != row - 1) {
      state = start;
      for (int m = depth; m > 0; --m)
        state.advance(view.again(ancestor(pass, row, m), h, i));
    }
    const float along = View::kNeedsProduct ? state.dot(view.key(row, h)) : 0.0F;
    const Update u = view.update(row, h, i, along);
    state.advance(u);
    const float out = state.dot(view.query(row, h)) + view.skip(row, h, i);
    if (lane == 0)
      view.out.base[row * view.out.row_stride + int64_t{h} * view.out.stride + i] = out;
    if (!prefill) {
      view.write_tape(row, h, i, u, lane);
      __syncwarp();
    }
  }
  if (prefill) state.store(committed);
}

template <typename View, int kParts>
__global__ void replay_recurrence(View view, ReplayView replay) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int slot = static_cast<int>(blockIdx.y);
  const int h = index / view.rows();
  if (h >= view.heads() || replay.count[slot] == 0) return;
  float* committed = view.memory.state + replay.state_slot[slot] * view.memory.state_width +
                     int64_t{index} * view.columns();
  StateRow<kParts> state = {.s = {}, .columns = view.columns(), .lane = lane};
  state.load(committed);
  const int32_t* rows = replay.rows + replay.first[slot];
  for (int r = 0; r < replay.count[slot]; ++r)
    state.advance(view.from_tape(rows[r], h, index % view.rows()));
  state.store(committed);
}

// Calls f with the number of elements of a state row that a lane holds, as a constant.
template <typename F>
void with_parts(int columns, F f) {
  if (columns <= kWarp) return f(std::integral_constant<int, 1>());
  if (columns <= 2 * kWarp) return f(std::integral_constant<int, 2>());
  if (columns <= 4 * kWarp) return f(std::integral_constant<int, 4>());
  f(std::integral_constant<int, kMaxKeyDim / kWarp>());
}

template <typename View>
void launch(const Context& context, const View& view, int n_rows, int columns) {
  const dim3 grid(static_cast<unsigned>((n_rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(context.n_views));
  with_parts(columns, [&](auto parts) {
    recur<View, parts.value><<<grid, kThreads, 0, context.stream>>>(context.pass, view);
  });
}

template <typename View>
void launch_replay(const Context& context, const View& view, int n_rows, int columns,
                   const ReplayView& replay) {
  const dim3 grid(static_cast<unsigned>((n_rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(replay.n_slots));
  with_parts(columns, [&](auto parts) {
    replay_recurrence<View, parts.value><<<grid, kThreads, 0, context.stream>>>(view, replay);
  });
}

DeltaView view_of(const Context& context, const plan::DeltaRule& op) {
  return {context.heads(op.q),           context.heads(op.k),
          context.heads(op.v),           context.heads(op.out),
          context.f32(op.decay),         context.f32(op.beta),
          memory_of(context, op.memory), op.head_map == plan::HeadMap::tiled};
}

SsmView view_of(const Context& context, const plan::SsmScan& op) {
  return {context.heads(op.x),   context.heads(op.b),          context.heads(op.c),
          context.heads(op.out), context.f32(op.dt),           context.vector(op.a),
          context.vector(op.d),  memory_of(context, op.memory)};
}

}  // namespace

bool has_shape(const plan::Plan& /*plan*/, const plan::DeltaRule& op) {
  return op.k.dim <= kMaxKeyDim;
}
bool has_shape(const plan::Plan& /*plan*/, const plan::SsmScan& op) {
  return op.b.dim <= kMaxKeyDim;
}

void run_op(const Context& context, const plan::CausalConv& op) {
  const ConvView view = view_of(context, op);
  const auto blocks = static_cast<unsigned>((view.width + kThreads - 1) / kThreads);
  const dim3 grid(blocks, static_cast<unsigned>(context.n_rows));
  convolve<<<grid, kThreads, 0, context.stream>>>(context.pass, view);
  if (!context.prefill) return;
  const dim3 states(blocks, static_cast<unsigned>(context.n_views));
  advance_conv<<<states, kThreads, 0, context.stream>>>(context.pass, view);
}

void replay_op(const Context& context, const plan::CausalConv& op, const ReplayView& replay) {
  const ConvView view = view_of(context, op);
  const dim3 grid(static_cast<unsigned>((view.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(replay.n_slots));
  replay_conv<<<grid, kThreads, 0, context.stream>>>(view, replay);
}

void run_op(const Context& context, const plan::DeltaRule& op) {
  launch(context, view_of(context, op), op.v.count * op.v.dim, op.k.dim);
}
void replay_op(const Context& context, const plan::DeltaRule& op, const ReplayView& replay) {
  launch_replay(context, view_of(context, op), op.v.count * op.v.dim, op.k.dim, replay);
}

void run_op(const Context& context, const plan::SsmScan& op) {
  launch(context, view_of(context, op), op.x.count * op.x.dim, op.b.dim);
}
void replay_op(const Context& context, const plan::SsmScan& op, const ReplayView& replay) {
  launch_replay(context, view_of(context, op), op.x.count * op.x.dim, op.b.dim, replay);
}

}  // namespace kapitsa::backend::cuda
