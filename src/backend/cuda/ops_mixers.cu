// The token mixers between their projections: Gated DeltaNet and Mamba-2. Three kernels each: what
// comes before the recurrence, the recurrence, and the gated norm after it.
#include "backend/cuda/recurrent.cuh"

namespace kapitsa::backend::cuda {
namespace {

// Where the intermediate results of a mixer lie in scratch memory: (rows, width) each.
struct MixerScratch {
  float* mixed;   // after the convolution
  float* first;   // decay, or the time step
  float* second;  // beta
};

MixerScratch scratch_of(const Context& context, int64_t channels, int64_t heads) {
  auto* base = reinterpret_cast<float*>(context.scratch);
  const int64_t rows = context.limits.max_rows;
  float* first = base + rows * channels;
  return {base, first, first + rows * heads};
}
int64_t scratch_floats(const ProgramLimits& limits, int64_t channels, int64_t heads) {
  return limits.max_rows * (channels + 2 * heads);
}

struct DeltaPrepare {
  ConvView conv;
  const float* a;
  const float* b;
  const float* a_coefficient;
  const float* dt_bias;
  float* decay;
  float* beta;
  int32_t n_k, n_v, dk, dv;
  float eps, q_scale;
};

// A block for one head of one row: its channels through the convolution, then the norm of a query
// or key head. Blocks of value heads also compute the head's gates.
__global__ void prepare_delta(PassView pass, DeltaPrepare p) {
  __shared__ float partial[kWarp];
  start_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  if (row >= pass.counts[PassView::kRows]) return;
  const bool is_value = head >= 2 * p.n_k;
  const int dim = is_value ? p.dv : p.dk;
  const int64_t first = is_value ? int64_t{2} * p.n_k * p.dk + int64_t{head - 2 * p.n_k} * p.dv
                                 : int64_t{head} * p.dk;
  float squares = 0.0F;
  float held[kMaxKeyDim / 128 * 2] = {};
  int n = 0;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x), ++n) {
    const float value = convolve_one(pass, p.conv, row, first + i);
    squares += value * value;
    held[n] = value;
  }
  float factor = 1.0F;
  if (!is_value)
    factor = (head < p.n_k ? p.q_scale : 1.0F) / sqrtf(block_sum(squares, partial) + p.eps);
  n = 0;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x), ++n)
    p.conv.out[row * p.conv.width + first + i] = held[n] * factor;
  if (!is_value || threadIdx.x > 0) return;
  const int h = head - 2 * p.n_k;
  const int64_t at = int64_t{row} * p.n_v + h;
  p.beta[at] = sigmoid(p.b[at]);
  p.decay[at] = p.a_coefficient[h] * softplus(p.a[at] + p.dt_bias[h]);
}

// out = Norm(out) * f(gate) per head, a warp for one head of one row.
__global__ void gate_heads(const int32_t* count, HeadsView out, NormView norm, const float* gate,
                           plan::Activation activation) {
  start_dependents();
  wait_for_inputs();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = blockIdx.y;
  const int h = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= *count || h >= out.count) return;
  float* x = out.base + row * out.row_stride + int64_t{h} * out.stride;
  const float* g = gate + row * out.count * out.dim + int64_t{h} * out.dim;
  float squares = 0.0F;
  for (int i = lane; i < out.dim; i += kWarp)
    squares += x[i] * x[i];
  const float factor =
      norm.present ? 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(out.dim) + norm.eps)
                   : 1.0F;
  for (int i = lane; i < out.dim; i += kWarp) {
    const float weight = norm.weight == nullptr ? 1.0F : norm.weight[h * norm.weight_stride + i];
    x[i] = x[i] * factor * weight * activate(activation, g[i]);
  }
}

struct MambaPrepare {
  ConvView conv;
  const float* dt_in;  // (rows, stride)
  const float* dt_bias;
  float* dt;
  int64_t in_stride;
  int32_t heads;
  float low, high;
};

__global__ void prepare_mamba(PassView pass, MambaPrepare p) {
  start_dependents();
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.y);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= pass.counts[PassView::kRows]) return;
  if (i < p.conv.width) {
    p.conv.out[row * p.conv.width + i] = convolve_one(pass, p.conv, row, i);
  } else if (i < p.conv.width + p.heads) {
    const int64_t h = i - p.conv.width;
    p.dt[int64_t{row} * p.heads + h] =
        fminf(fmaxf(softplus(p.dt_in[row * p.in_stride + h] + p.dt_bias[h]), p.low), p.high);
  }
}

// y = Norm(y * silu(z)) in groups, a block for one group of one row.
__global__ void gate_groups(const int32_t* count, float* y, const float* z, int64_t z_stride,
                            int32_t groups, int32_t dim, NormView norm) {
  __shared__ float partial[kWarp];
  start_dependents();
  wait_for_inputs();
  const int64_t row = blockIdx.y;
  const int g = static_cast<int>(blockIdx.x);
  if (row >= *count) return;
  float* out = y + (row * groups + g) * dim;
  const float* gate = z + row * z_stride + int64_t{g} * dim;
  float squares = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
    const float value = out[i] * activate(plan::Activation::silu, gate[i]);
    out[i] = value;
    squares += value * value;
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(dim);
  const float factor = norm.present ? 1.0F / sqrtf(mean + norm.eps) : 1.0F;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x))
    out[i] *= factor * (norm.weight == nullptr ? 1.0F : norm.weight[g * norm.weight_stride + i]);
}

ConvView conv_of(const Context& context, const plan::DeltaMix& op, float* mixed) {
  const float* in = context.f32(op.qkv);
  return {in,
          mixed,
          context.vector(op.conv),
          nullptr,
          memory_of(context, op.conv_memory),
          context.width(op.qkv),
          context.width(op.qkv),
          op.taps,
          1,
          plan::Activation::silu};
}

DeltaView delta_of(const Context& context, const plan::DeltaMix& op, const MixerScratch& scratch) {
  const int64_t channels = context.width(op.qkv);
  const int32_t keys = op.n_k * op.dk;
  return {{scratch.mixed, channels, op.n_k, op.dk, op.dk},
          {scratch.mixed + keys, channels, op.n_k, op.dk, op.dk},
          {scratch.mixed + 2 * keys, channels, op.n_v, op.dv, op.dv},
          {context.f32(op.out), context.width(op.out), op.n_v, op.dv, op.dv},
          scratch.first,
          scratch.second,
          memory_of(context, op.delta_memory),
          op.head_map == plan::HeadMap::tiled};
}

int64_t mamba_channels(const plan::MambaMix& op) {
  return int64_t{op.heads} * op.p + 2 * int64_t{op.groups} * op.n;
}

ConvView conv_of(const Context& context, const plan::MambaMix& op, float* mixed) {
  return {context.f32(op.in) + int64_t{op.heads} * op.p,
          mixed,
          context.vector(op.conv),
          context.vector(op.conv_bias),
          memory_of(context, op.conv_memory),
          mamba_channels(op),
          context.width(op.in),
          op.taps,
          1,
          plan::Activation::silu};
}

SsmView ssm_of(const Context& context, const plan::MambaMix& op, const MixerScratch& scratch) {
  const int64_t channels = mamba_channels(op);
  float* b = scratch.mixed + int64_t{op.heads} * op.p;
  return {{scratch.mixed, channels, op.heads, op.p, op.p},
          {b, channels, op.groups, op.n, op.n},
          {b + int64_t{op.groups} * op.n, channels, op.groups, op.n, op.n},
          {context.f32(op.out), context.width(op.out), op.heads, op.p, op.p},
          scratch.first,
          context.vector(op.a),
          context.vector(op.d),
          memory_of(context, op.ssm_memory)};
}

}  // namespace

bool has_shape(const plan::Plan& /*plan*/, const plan::DeltaMix& op) {
  return op.dk <= kMaxKeyDim && op.dv <= kMaxKeyDim;
}
bool has_shape(const plan::Plan& /*plan*/, const plan::MambaMix& op) {
  return op.n <= kMaxKeyDim;
}

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::DeltaMix& op) {
  return 4 * scratch_floats(limits, plan.buffer(op.qkv).width, op.n_v);
}
int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::MambaMix& op) {
  return 4 * scratch_floats(limits, mamba_channels(op), op.heads);
}

void run_op(const Context& context, const plan::DeltaMix& op) {
  const MixerScratch scratch = scratch_of(context, context.width(op.qkv), op.n_v);
  const ConvView conv = conv_of(context, op, scratch.mixed);
  const auto rows = static_cast<unsigned>(context.n_rows);
  launch_early(prepare_delta, dim3(static_cast<unsigned>(2 * op.n_k + op.n_v), rows), 128, 0,
               context.stream, context.pass,
               DeltaPrepare{conv, context.f32(op.a), context.f32(op.b),
                            context.vector(op.a_coefficient), context.vector(op.dt_bias),
                            scratch.first, scratch.second, op.n_k, op.n_v, op.dk, op.dv, op.l2_eps,
                            1.0F / sqrtf(static_cast<float>(op.dk))});
  launch_advance(context, conv);
  launch_recurrence(context, delta_of(context, op, scratch));
  launch_early(gate_heads, dim3(static_cast<unsigned>((op.n_v + kWarps - 1) / kWarps), rows),
               kThreads, 0, context.stream, context.count_of(op.out),
               HeadsView{context.f32(op.out), context.width(op.out), op.n_v, op.dv, op.dv},
               context.norm(op.out_norm, op.dv), static_cast<const float*>(context.f32(op.z)),
               op.gate);
}

void replay_op(const Context& context, const plan::DeltaMix& op, const ReplayView& replay) {
  const MixerScratch scratch = scratch_of(context, context.width(op.qkv), op.n_v);
  launch_replay(context, conv_of(context, op, scratch.mixed), replay);
  launch_replay(context, delta_of(context, op, scratch), replay);
}

void run_op(const Context& context, const plan::MambaMix& op) {
  const MixerScratch scratch = scratch_of(context, mamba_channels(op), op.heads);
  const ConvView conv = conv_of(context, op, scratch.mixed);
  const auto rows = static_cast<unsigned>(context.n_rows);
  const int64_t inner = int64_t{op.heads} * op.p;
  launch_early(prepare_mamba,
               dim3(static_cast<unsigned>((conv.width + op.heads + kThreads - 1) / kThreads), rows),
               kThreads, 0, context.stream, context.pass,
               MambaPrepare{conv, context.f32(op.in) + inner + conv.width,
                            context.vector(op.dt_bias), scratch.first, context.width(op.in),
                            op.heads, op.dt_low, op.dt_high});
  launch_advance(context, conv);
  launch_recurrence(context, ssm_of(context, op, scratch));
  const auto dim = static_cast<int32_t>(inner / op.groups);
  launch_early(gate_groups, dim3(static_cast<unsigned>(op.groups), rows), kThreads, 0,
               context.stream, context.count_of(op.out), context.f32(op.out),
               static_cast<const float*>(context.f32(op.in)), context.width(op.in), op.groups, dim,
               context.norm(op.out_norm, dim));
}

void replay_op(const Context& context, const plan::MambaMix& op, const ReplayView& replay) {
  const MixerScratch scratch = scratch_of(context, mamba_channels(op), op.heads);
  launch_replay(context, conv_of(context, op, scratch.mixed), replay);
  launch_replay(context, ssm_of(context, op, scratch), replay);
}

}  // namespace kapitsa::backend::cuda
