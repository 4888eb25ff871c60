// Ops that read weights in the encoding of their file, element by element: exact and simple. The
// projections here serve ComputeMode::f32 and the encodings without a faster layout.
#include "backend/cuda/decode.cuh"
#include "backend/cuda/decode_tile.cuh"
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/ops.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSharedRows = 8;  // rows of the pass that share one decoding of the weights

unsigned blocks_for(int64_t n, int per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// Element i of row `row` of a table, in either layout.
__device__ float table_value(const WeightView& table, const TileView& tiles, int64_t row,
                             int64_t i) {
  return tiles.format == TileFormat::none ? decode_at(table, row_of(table, 0, row), i)
                                          : tile_value(tiles, row, i);
}

__global__ void embed_rows(PassView pass, WeightView table, TileView tiles, float* out) {
  const int64_t row = blockIdx.y;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= pass.counts[PassView::kRows] || i >= table.in) return;
  out[row * table.in + i] = table_value(table, tiles, pass.tokens[row], i);
}

// A warp for one output element of up to eight rows; lane l adds up elements l, l + 32, ... in
// order, then the lanes' sums meet in a fixed tree.
__global__ void project_rows(const int32_t* count, WeightView w, const float* in, const float* bias,
                             float* out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t o = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t first = int64_t{blockIdx.y} * kSharedRows;
  const int64_t n = *count - first;
  if (o >= w.out || n <= 0) return;
  const WeightRow weights = row_of(w, 0, o);
  float sums[kSharedRows] = {};
  for (int64_t k = lane; k < w.in; k += kWarp) {
    const float value = decode_at(w, weights, k);
#pragma unroll
    for (int r = 0; r < kSharedRows; ++r) {
      if (r < n) sums[r] = fmaf(value, in[(first + r) * w.in + k], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kSharedRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0 && r < n) out[(first + r) * w.out + o] = sum + (bias == nullptr ? 0.0F : bias[o]);
  }
}

// The same for one chosen expert of one row: blockIdx.y counts (row, slot).
__global__ void project_experts(const int32_t* count, WeightView w, const float* in, bool shared,
                                const int32_t* ids, int32_t top_k, float* out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t o = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t choice = blockIdx.y;
  const int64_t row = choice / top_k;
  if (o >= w.out || row >= *count) return;
  const WeightRow weights = row_of(w, ids[choice], o);
  const float* x = in + (shared ? row : choice) * w.in;
  float sum = 0.0F;
  for (int64_t k = lane; k < w.in; k += kWarp)
    sum = fmaf(decode_at(w, weights, k), x[k], sum);
  sum = warp_sum(sum);
  if (lane == 0) out[choice * w.out + o] = sum;
}

// Bounds of one row's hashes; small enough to be passed by value.
constexpr int kMaxTokens = 8;
constexpr int kMaxTables = 32;
struct NgramView {
  int64_t multipliers[kMaxTokens];
  int64_t offsets[kMaxTables];
  int64_t vocabularies[kMaxTables];
  int32_t n_tokens, n_heads, heads_per_ngram, eos;
};

__device__ int64_t ngram_row(const PassView& pass, const NgramView& view, int64_t row, int head) {
  const int n_tokens = 2 + head / view.heads_per_ngram;
  uint64_t mixed = 0;
  bool ended = false;
  for (int k = 0; k < n_tokens; ++k) {
    int64_t token = pass.tokens[row];
    if (k > 0) {
      token = pass.history[row * pass.n_history + k - 1];
      ended = ended || token < 0 || token == view.eos;
      if (ended) token = view.eos;
    }
    mixed ^= static_cast<uint64_t>(token) * static_cast<uint64_t>(view.multipliers[k]);
  }
  const int64_t vocabulary = view.vocabularies[head];
  const int64_t remainder = static_cast<int64_t>(mixed) % vocabulary;
  return view.offsets[head] + (remainder + vocabulary) % vocabulary;
}

__global__ void ngram_rows(PassView pass, WeightView table, NgramView view, float* out) {
  const int64_t row = blockIdx.y;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= pass.counts[PassView::kRows] || i >= view.n_heads * table.in) return;
  const int head = static_cast<int>(i / table.in);
  out[row * view.n_heads * table.in + i] =
      decode_at(table, row_of(table, 0, ngram_row(pass, view, row, head)), i % table.in);
}

// A block for 32 columns of one row: warp w adds up entries w, w + 32, ... of the vocabulary.
__global__ void __launch_bounds__(kWarp* kWarp)
    soft_embed(const int32_t* count, WeightView table, TileView tiles, const float* probabilities,
               float scale, float* out) {
  __shared__ float partial[kWarp][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.y;
  const int64_t i = int64_t{blockIdx.x} * kWarp + lane;
  if (row >= *count) return;
  float sum = 0.0F;
  if (i < table.in) {
    for (int64_t v = warp; v < table.out; v += kWarp)
      sum = fmaf(scale * probabilities[row * table.out + v], table_value(table, tiles, v, i), sum);
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || i >= table.in) return;
  sum = 0.0F;
  for (int w = 0; w < kWarp; ++w)
    sum += partial[w][lane];
  out[row * table.in + i] = sum;
}

}  // namespace

void run_op(const Context& context, const plan::EmbedRows& op) {
  const WeightView& table = context.weight(op.table);
  const dim3 grid(blocks_for(table.in, kThreads), static_cast<unsigned>(context.n_rows));
  embed_rows<<<grid, kThreads, 0, context.stream>>>(context.pass, table, context.tile(op.table),
                                                    context.f32(op.out));
}

void run_op(const Context& context, const plan::Linear& op) {
  if (context.tile(op.projection.weight).format != TileFormat::none) return run_tiles(context, op);
  const WeightView& w = context.weight(op.projection.weight);
  const int32_t rows = context.rows_of(op.in);
  if (rows == 0) return;
  const dim3 grid(blocks_for(w.out, kWarps), blocks_for(rows, kSharedRows));
  project_rows<<<grid, kThreads, 0, context.stream>>>(
      context.count_of(op.in), w, context.f32(op.in), context.vector(op.projection.bias),
      context.f32(op.projection.out));
}

void run_op(const Context& context, const plan::ExpertLinear& op) {
  const WeightView& w = context.weight(op.weight);
  const auto top_k = static_cast<int32_t>(context.width(op.ids));
  const int32_t rows = context.rows_of(op.in);
  if (rows == 0) return;
  const dim3 grid(blocks_for(w.out, kWarps), static_cast<unsigned>(rows * top_k));
  project_experts<<<grid, kThreads, 0, context.stream>>>(
      context.count_of(op.in), w, context.f32(op.in), context.width(op.in) == w.in,
      context.i32(op.ids), top_k, context.f32(op.out));
}

bool has_shape(const plan::Plan& /*plan*/, const plan::NgramRows& op) {
  return op.multipliers.size() <= kMaxTokens && op.head_vocab.size() <= kMaxTables;
}

void run_op(const Context& context, const plan::NgramRows& op) {
  const WeightView& table = context.weight(op.table);
  NgramView view = {};
  view.n_tokens = static_cast<int32_t>(op.multipliers.size());
  view.n_heads = static_cast<int32_t>(op.head_vocab.size());
  view.heads_per_ngram = op.heads_per_ngram;
  view.eos = op.eos_token;
  for (size_t i = 0; i < op.multipliers.size(); ++i)
    view.multipliers[i] = op.multipliers[i];
  for (size_t i = 0; i < op.head_vocab.size(); ++i) {
    view.offsets[i] = op.head_offsets[i];
    view.vocabularies[i] = op.head_vocab[i];
  }
  const dim3 grid(blocks_for(view.n_heads * table.in, kThreads),
                  static_cast<unsigned>(context.n_rows));
  ngram_rows<<<grid, kThreads, 0, context.stream>>>(context.pass, table, view, context.f32(op.out));
}

void run_op(const Context& context, const plan::SoftEmbed& op) {
  const WeightView& table = context.weight(op.table);
  const int32_t rows = context.rows_of(op.out);
  if (rows == 0) return;
  const dim3 grid(blocks_for(table.in, kWarp), static_cast<unsigned>(rows));
  soft_embed<<<grid, kWarp * kWarp, 0, context.stream>>>(
      context.count_of(op.out), table, context.tile(op.table), context.f32(op.probabilities),
      op.scale, context.f32(op.out));
}

}  // namespace kapitsa::backend::cuda
