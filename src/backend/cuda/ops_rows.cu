// Ops that look at one row only: elementwise functions, copies, norms, rope, softmax.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;

int blocks_for(int64_t n, int per_block) {
  return static_cast<int>((n + per_block - 1) / per_block);
}

// out[row, column] = f(row, column), a block for 256 columns of one row.
template <typename F>
__global__ void map_rows(const int32_t* count, float* out, int64_t width, F f) {
  const int64_t row = blockIdx.y;
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= *count || column >= width) return;
  out[row * width + column] = f(row, column);
}

template <typename F>
void map(const Context& context, plan::BufferId out, const F& f) {
  const int64_t width = context.width(out);
  const dim3 grid(static_cast<unsigned>(blocks_for(width, kThreads)),
                  static_cast<unsigned>(context.rows_of(out)));
  if (grid.y == 0) return;
  map_rows<<<grid, kThreads, 0, context.stream>>>(context.count_of(out), context.f32(out), width,
                                                  f);
}

struct AddF {
  const float* a;
  const float* b;
  int64_t width;
  __device__ float operator()(int64_t row, int64_t column) const {
    const int64_t i = row * width + column;
    return a[i] + b[i];
  }
};
struct MulF {
  const float* a;
  const float* b;
  int64_t width, b_width;
  __device__ float operator()(int64_t row, int64_t column) const {
    return a[row * width + column] * b[row * b_width + column / (width / b_width)];
  }
};
struct AffineF {
  const float* in;
  int64_t width;
  float scale, shift;
  __device__ float operator()(int64_t row, int64_t column) const {
    return scale * in[row * width + column] + shift;
  }
};
struct ActivateF {
  const float* in;
  int64_t width;
  plan::Activation function;
  __device__ float operator()(int64_t row, int64_t column) const {
    return activate(function, in[row * width + column]);
  }
};
struct ScaleColumnsF {
  const float* in;
  const float* weight;
  int64_t width;
  __device__ float operator()(int64_t row, int64_t column) const {
    return weight[column] * in[row * width + column];
  }
};
struct SoftplusBiasF {
  const float* in;
  const float* bias;
  int64_t width;
  float low, high;
  __device__ float operator()(int64_t row, int64_t column) const {
    return fminf(fmaxf(softplus(in[row * width + column] + bias[column]), low), high);
  }
};
struct SoftcapF {
  const float* in;
  int64_t width;
  float cap;
  __device__ float operator()(int64_t row, int64_t column) const {
    return cap * tanhf(in[row * width + column] / cap);
  }
};
struct RepeatF {
  const float* in;
  int64_t width;  // of the input
  __device__ float operator()(int64_t row, int64_t column) const {
    return in[row * width + column % width];
  }
};
struct SumGroupsF {
  const float* in;
  int64_t width;  // of the output
  int32_t groups;
  float scale;
  __device__ float operator()(int64_t row, int64_t column) const {
    float sum = 0.0F;
    for (int32_t g = 0; g < groups; ++g)
      sum += in[(row * groups + g) * width + column];
    return scale * sum;
  }
};

__global__ void copy_heads(const int32_t* count, HeadsView in, HeadsView out) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= *count || i >= in.count * in.dim) return;
  const int h = i / in.dim;
  const int e = i % in.dim;
  out.base[row * out.row_stride + int64_t{h} * out.stride + e] =
      in.base[row * in.row_stride + int64_t{h} * in.stride + e];
}

__device__ float* head_at(const HeadsView& heads, int64_t row, int h) {
  return heads.base + row * heads.row_stride + int64_t{h} * heads.stride;
}

// A block for one head of one row: out = in * weight * scale / sqrt(sum(in^2) / divisor + eps).
__global__ void normalise_heads(const int32_t* count, HeadsView in, HeadsView out, NormView norm,
                                float divisor, float scale) {
  __shared__ float partial[kWarp];
  const int64_t row = blockIdx.y;
  const int h = static_cast<int>(blockIdx.x);
  if (row >= *count) return;
  const float* x = head_at(in, row, h);
  float* y = head_at(out, row, h);
  const float* weight = norm.weight == nullptr ? nullptr : norm.weight + h * norm.weight_stride;
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < in.dim; i += static_cast<int>(blockDim.x))
    sum += x[i] * x[i];
  const float mean = block_sum(sum, partial) / divisor;
  const float factor = scale / sqrtf(mean + norm.eps);
  for (int i = static_cast<int>(threadIdx.x); i < in.dim; i += static_cast<int>(blockDim.x))
    y[i] = x[i] * factor * (weight == nullptr ? 1.0F : weight[i]);
}

// The number of threads is part of the order of the sum, so it depends on the head alone.
int norm_threads(int32_t dim) {
  return dim <= 256 ? kWarp : dim <= 1024 ? 128 : 512;
}

void launch_norm(const Context& context, const plan::Heads& in, const plan::Heads& out,
                 const NormView& norm, float divisor, float scale) {
  const dim3 grid(static_cast<unsigned>(in.count),
                  static_cast<unsigned>(context.rows_of(out.buffer)));
  if (grid.y == 0) return;
  normalise_heads<<<grid, norm_threads(in.dim), 0, context.stream>>>(
      context.count_of(out.buffer), context.heads(in), context.heads(out), norm, divisor, scale);
}

__global__ void group_dot(const int32_t* count, const float* a, const float* b, float* out,
                          int64_t size, float scale) {
  __shared__ float partial[kWarp];
  const int64_t row = blockIdx.y;
  if (row >= *count) return;
  const int64_t group = row * gridDim.x + blockIdx.x;
  float sum = 0.0F;
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x)
    sum += a[group * size + i] * b[group * size + i];
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) out[group] = scale * sum;
}

__global__ void softmax_rows(const int32_t* count, const float* in, float* out, int64_t width) {
  __shared__ float partial[kWarp];
  const int64_t row = blockIdx.x;
  if (row >= *count) return;
  in += row * width;
  out += row * width;
  float top = -INFINITY;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    top = fmaxf(top, in[i]);
  top = block_max(top, partial);
  float sum = 0.0F;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float p = expf(in[i] - top);
    sum += p;
    out[i] = p;
  }
  sum = block_sum(sum, partial);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    out[i] /= sum;
}

__global__ void rotate_heads(PassView pass, HeadsView x, RopeView rope) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= pass.counts[PassView::kRows] || i >= x.count * rope.n_pairs) return;
  const int pair = i % rope.n_pairs;
  float* head = head_at(x, row, i / rope.n_pairs);
  float* first = head + (rope.adjacent ? 2 * pair : pair);
  float* second = rope.adjacent ? first + 1 : first + rope.n_pairs;
  float c = 0.0F;
  float s = 0.0F;
  rope_angle(pass.positions[row], rope.inv_freq[pair], rope.magnitude, &c, &s);
  const float a = *first;
  const float b = *second;
  *first = a * c - b * s;
  *second = a * s + b * c;
}

}  // namespace

void run_op(const Context& context, const plan::Add& op) {
  map(context, op.out, AddF{context.f32(op.a), context.f32(op.b), context.width(op.out)});
}
void run_op(const Context& context, const plan::Mul& op) {
  map(context, op.out,
      MulF{context.f32(op.a), context.f32(op.b), context.width(op.a), context.width(op.b)});
}
void run_op(const Context& context, const plan::Affine& op) {
  map(context, op.out, AffineF{context.f32(op.in), context.width(op.in), op.scale, op.shift});
}
void run_op(const Context& context, const plan::Activate& op) {
  map(context, op.out, ActivateF{context.f32(op.in), context.width(op.in), op.function});
}
void run_op(const Context& context, const plan::ScaleColumns& op) {
  map(context, op.out,
      ScaleColumnsF{context.f32(op.in), context.vector(op.weight), context.width(op.in)});
}
void run_op(const Context& context, const plan::SoftplusBias& op) {
  map(context, op.out,
      SoftplusBiasF{context.f32(op.in), context.vector(op.bias), context.width(op.in), op.low,
                    op.high});
}
void run_op(const Context& context, const plan::Softcap& op) {
  map(context, op.out, SoftcapF{context.f32(op.in), context.width(op.in), op.cap});
}
void run_op(const Context& context, const plan::Repeat& op) {
  map(context, op.out, RepeatF{context.f32(op.in), context.width(op.in)});
}
void run_op(const Context& context, const plan::SumGroups& op) {
  map(context, op.out, SumGroupsF{context.f32(op.in), context.width(op.out), op.groups, op.scale});
}

void run_op(const Context& context, const plan::Copy& op) {
  // i32 and f32 are both four bytes, which is all that a copy sees.
  const dim3 grid(static_cast<unsigned>(blocks_for(int64_t{op.in.count} * op.in.dim, kThreads)),
                  static_cast<unsigned>(context.rows_of(op.out.buffer)));
  if (grid.y == 0) return;
  copy_heads<<<grid, kThreads, 0, context.stream>>>(context.count_of(op.out.buffer),
                                                    context.heads(op.in), context.heads(op.out));
}

void run_op(const Context& context, const plan::RmsNorm& op) {
  launch_norm(context, op.in, op.out, context.norm(op.norm, op.in.dim),
              static_cast<float>(op.in.dim), 1.0F);
}
void run_op(const Context& context, const plan::L2Norm& op) {
  launch_norm(context, op.x, op.x, {true, nullptr, 0, op.eps}, 1.0F, op.scale);
}

void run_op(const Context& context, const plan::GroupDot& op) {
  const dim3 grid(static_cast<unsigned>(op.groups), static_cast<unsigned>(context.rows_of(op.out)));
  if (grid.y == 0) return;
  group_dot<<<grid, kThreads, 0, context.stream>>>(context.count_of(op.out), context.f32(op.a),
                                                   context.f32(op.b), context.f32(op.out),
                                                   context.width(op.a) / op.groups, op.scale);
}

void run_op(const Context& context, const plan::Softmax& op) {
  const int32_t rows = context.rows_of(op.out);
  if (rows == 0) return;
  softmax_rows<<<rows, kThreads, 0, context.stream>>>(context.count_of(op.out), context.f32(op.in),
                                                      context.f32(op.out), context.width(op.out));
}

void run_op(const Context& context, const plan::ApplyRope& op) {
  const RopeView rope = context.rope(op.rope);
  if (rope.n_pairs == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks_for(int64_t{op.x.count} * rope.n_pairs, kThreads)),
                  static_cast<unsigned>(context.n_rows));
  rotate_heads<<<grid, kThreads, 0, context.stream>>>(context.pass, context.heads(op.x), rope);
}

}  // namespace kapitsa::backend::cuda
