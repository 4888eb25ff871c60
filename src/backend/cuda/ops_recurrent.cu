// The recurrent primitives: convolution, gated delta rule, Mamba-2 scan.
#include "backend/cuda/recurrent.cuh"

namespace kapitsa::backend::cuda {
namespace {

__global__ void convolve(PassView pass, ConvView c) {
  const int row = static_cast<int>(blockIdx.y);
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= pass.counts[PassView::kRows] || channel >= c.width) return;
  c.out[row * c.width + channel] = convolve_one(pass, c, row, channel);
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
                [&](int i) { return c.in[(first + i) * c.in_stride + channel]; });
}

__global__ void replay_conv(ConvView c, ReplayView replay) {
  const int slot = static_cast<int>(blockIdx.y);
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= c.width || replay.count[slot] == 0) return;
  const int32_t* rows = replay.rows + replay.first[slot];
  append_inputs(c, replay.state_slot[slot], channel, replay.count[slot],
                [&](int i) { return c.memory.tape[rows[i] * c.memory.tape_width + channel]; });
}

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
void start(const Context& context, const View& view) {
  const int n_rows = view.heads() * view.rows();
  const dim3 grid(static_cast<unsigned>((n_rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(context.n_views));
  with_parts(view.columns(), [&](auto parts) {
    recur<View, parts.value><<<grid, kThreads, 0, context.stream>>>(context.pass, view);
  });
}

template <typename View>
void start_replay(const Context& context, const View& view, const ReplayView& replay) {
  const int n_rows = view.heads() * view.rows();
  const dim3 grid(static_cast<unsigned>((n_rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(replay.n_slots));
  with_parts(view.columns(), [&](auto parts) {
    replay_recurrence<View, parts.value><<<grid, kThreads, 0, context.stream>>>(view, replay);
  });
}

ConvView view_of(const Context& context, const plan::CausalConv& op) {
  return {context.f32(op.in),
          context.f32(op.out),
          context.vector(op.weight),
          context.vector(op.bias),
          memory_of(context, op.memory),
          context.width(op.in),
          context.width(op.in),
          op.taps,
          op.dilation,
          op.activation};
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

void launch_conv(const Context& context, const ConvView& view) {
  const dim3 grid(static_cast<unsigned>((view.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(context.n_rows));
  convolve<<<grid, kThreads, 0, context.stream>>>(context.pass, view);
}
void launch_advance(const Context& context, const ConvView& view) {
  if (!context.prefill) return;
  const dim3 grid(static_cast<unsigned>((view.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(context.n_views));
  advance_conv<<<grid, kThreads, 0, context.stream>>>(context.pass, view);
}
void launch_replay(const Context& context, const ConvView& view, const ReplayView& replay) {
  const dim3 grid(static_cast<unsigned>((view.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(replay.n_slots));
  replay_conv<<<grid, kThreads, 0, context.stream>>>(view, replay);
}
void launch_recurrence(const Context& context, const DeltaView& view) {
  start(context, view);
}
void launch_recurrence(const Context& context, const SsmView& view) {
  start(context, view);
}
void launch_replay(const Context& context, const DeltaView& view, const ReplayView& replay) {
  start_replay(context, view, replay);
}
void launch_replay(const Context& context, const SsmView& view, const ReplayView& replay) {
  start_replay(context, view, replay);
}

bool has_shape(const plan::Plan& /*plan*/, const plan::DeltaRule& op) {
  return op.k.dim <= kMaxKeyDim;
}
bool has_shape(const plan::Plan& /*plan*/, const plan::SsmScan& op) {
  return op.b.dim <= kMaxKeyDim;
}

void run_op(const Context& context, const plan::CausalConv& op) {
  const ConvView view = view_of(context, op);
  launch_conv(context, view);
  launch_advance(context, view);
}
void replay_op(const Context& context, const plan::CausalConv& op, const ReplayView& replay) {
  launch_replay(context, view_of(context, op), replay);
}

void run_op(const Context& context, const plan::DeltaRule& op) {
  launch_recurrence(context, view_of(context, op));
}
void replay_op(const Context& context, const plan::DeltaRule& op, const ReplayView& replay) {
  launch_replay(context, view_of(context, op), replay);
}

void run_op(const Context& context, const plan::SsmScan& op) {
  launch_recurrence(context, view_of(context, op));
}
void replay_op(const Context& context, const plan::SsmScan& op, const ReplayView& replay) {
  launch_replay(context, view_of(context, op), replay);
}

}  // namespace kapitsa::backend::cuda
