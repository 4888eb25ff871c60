// A block multiplies tiles of 16 output rows with the activations of up to 8 kN rows of the pass.
// Its warps share k: warp w of a tile owns a fixed slice, streams that part of the weights through
// a ring of its own in shared memory (cp.async, so that nothing waits for another warp), and keeps
// the sums of a tile in registers. The warps' sums meet in shared memory in the order of k. Where
// k is too long for the activations to fit, blocks share it too, and the last one to finish a tile
// adds the parts up, again in the order of k.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/skinny.cuh"
#include "backend/cuda/skinny.h"

#include <algorithm>

namespace kapitsa::backend::cuda {
namespace {

constexpr int kMaxWarps = kMaxBlockWarps;
constexpr int kStages = 3;
constexpr int kMaxGroups = 80;          // of activations in a block; 48 of bf16
constexpr int kMaxShared = 222 * 1024;  // bytes

__device__ const Segment& segment_of(const SkinnyArgs& args, int tile) {
  int s = 0;
  while (s + 1 < args.n_segments && tile >= args.segments[s + 1].first_tile)
    ++s;
  return args.segments[s];
}

// Which bytes a warp streams: for each of its tiles (for gated ones the first and the second
// matrix), the chunks of its slice.
template <bool kGated>
struct Stream {
  const SkinnyArgs& args;
  int g0, g1;  // groups of the slice
  int step, stride, end, tile_warp;
  int set = 0, group = 0;

  __device__ bool done() const { return step >= end; }
  __device__ int tile() const { return step * args.tile_warps + tile_warp; }
  __device__ const Segment& segment() const {
    if constexpr (kGated) return args.segments[set];
    return segment_of(args, tile());
  }
  __device__ int tile_in_segment(const Segment& s) const {
    return kGated ? tile() : tile() - s.first_tile;
  }
  __device__ int groups_now() const {
    return min(chunk_groups(segment().weight.format), g1 - group);
  }
  // Starts the copies of the next chunk.
  __device__ void fetch(uint32_t to, int lane) const {
    if (tile() >= args.n_tiles) return;
    const Segment& s = segment();
    copy_chunk(to, s.weight.data + tile_in_segment(s) * s.weight.tile_bytes, s.weight.format, group,
               groups_now(), lane);
  }
  __device__ void next() {
    group += groups_now();
    if (group < g1) return;
    group = g0;
    if (kGated && ++set < 2) return;
    set = 0;
    step += stride;
  }
};

// The largest value decides the scale; the whole row decides the norm.
template <int kN>
__device__ void find_rows(const SkinnyArgs& args, int64_t first_row, int n_rows, int k0, int k1,
                          RowFacts& facts) {
  constexpr int kRows = kN * kColumns;
  __shared__ RowScratch<kRows> scratch;
  float largest[kRows];
  float squares[kRows];
  find_facts<kRows>(
      n_rows, args.has_norm ? 0 : k0, args.has_norm ? args.k : k1,
      [&](int row, int k, float& most, float& sum) {
        float4 v = *reinterpret_cast<const float4*>(args.x + (first_row + row) * args.k + k);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        if (args.norm_weight != nullptr)
          v = times(v, *reinterpret_cast<const float4*>(args.norm_weight + k));
        most = fmaxf(most, largest_of(v));
      },
      scratch, largest, squares);
  const int row = static_cast<int>(threadIdx.x);
  if (row >= kRows) return;
  const float2 all = row < n_rows ? join_facts(scratch, row) : make_float2(0.0F, 0.0F);
  const int up = scale_exponent(all.x);
  facts.scale[row] = power_of_two(up);
  facts.finish[row] =
      power_of_two(-up) *
      (args.has_norm ? 1.0F / sqrtf(all.y / static_cast<float>(args.k) + args.norm_eps) : 1.0F);
}

// Writes the fragments of groups g0 to g1 (tile_mma.cuh) for all rows.
template <int kN, bool kBf16>
__device__ void fill_fragments(const SkinnyArgs& args, int64_t first_row, int n_rows, int g0,
                               int g1, const RowFacts& facts, uint8_t* fragments) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kBytes = fragment_bytes(kBf16);
  // An item is one plane (two steps) of one group of one column block.
  const int n_items = (g1 - g0) * kN * 2;
#pragma unroll 4
  for (int item = warp; item < n_items; item += n_warps) {
    const int plane = item % 2;
    const int n = item / 2 % kN;
    const int group = item / (2 * kN);
    const int row = n * kColumns + lane / 4;
    uint8_t* base = fragments + (group * kN + n) * kBytes;
    write_fragments<kBf16>(base, plane, lane, [&](int in_group) {
      if (row >= n_rows) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      const int k = (g0 + group) * kGroup + in_group;
      float4 v = *reinterpret_cast<const float4*>(args.x + (first_row + row) * args.k + k);
      if (args.norm_weight != nullptr)
        v = times(v, *reinterpret_cast<const float4*>(args.norm_weight + k));
      return scaled(v, facts.scale[row]);
    });
  }
}

// One result: output row o of `segment`, for row `column` of the block.
__device__ void finish_value(const SkinnyArgs& args, const Segment& s, int64_t row, int64_t o,
                             float value) {
  if (s.bias != nullptr) value += s.bias[o];
  value *= args.scale;
  if (args.softcap > 0) value = args.softcap * tanhf(value / args.softcap);
  float* out = s.out + row * s.out_stride + o;
  *out = args.finish == Finish::add ? *out + value : value;
}

// Adds up the parts of a tile when this block is the last to bring one. True in all threads where
// the sums are complete; `value` is then the sum.
__device__ bool join_splits(const SkinnyArgs& args, int64_t tile_index, int split, int element,
                            int n_elements, bool active, float& value) {
  __shared__ int last;
  float* partial = args.partial + tile_index * args.n_splits * n_elements;
  if (active) partial[split * n_elements + element] = value;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(args.counters + tile_index, 1) == args.n_splits - 1;
    if (last) args.counters[tile_index] = 0;
    __threadfence();
  }
  __syncthreads();
  const bool complete = last != 0;
  if (complete && active) {
    value = 0.0F;
    for (int s = 0; s < args.n_splits; ++s)
      value += __ldcg(partial + s * n_elements + element);
  }
  __syncthreads();
  return complete;
}

// The results of a step: adds up what the warps found, in the order of k, and writes it. `sums` are
// those of the step; `turn` is this thread's place among those of the block.
template <int kN, bool kGated>
__device__ void finish_step(const SkinnyArgs& args, const RowFacts& facts, const float* sums,
                            int step, int64_t first_row, int n_rows, int turn) {
  constexpr int kSets = kGated ? 2 : 1;
  constexpr int kElements = 128 * kN;
  const int split = static_cast<int>(blockIdx.z);
  const int n_values = args.tile_warps * kElements;
  const int rounds = (n_values + static_cast<int>(blockDim.x) - 1) / static_cast<int>(blockDim.x);
  for (int round = 0; round < rounds; ++round) {
    const int i = round * static_cast<int>(blockDim.x) + turn;
    const int which = i / kElements;
    const int element = i % kElements;
    const int own = step * args.tile_warps + which;
    const bool active = i < n_values && own < args.n_tiles;
    float value[kSets] = {};
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const float* from = sums + (which * kSets + set) * args.k_warps * kElements;
#pragma unroll 5
      for (int w = 0; w < (active ? args.k_warps : 0); ++w)
        value[set] += from[w * kElements + element];
    }
    const int owner = element % 128 / 4;
    const int j = element % 4;
    const int column = element / 128 * kColumns + 2 * (owner % 4) + j % 2;
    bool complete = true;
    if (args.n_splits > 1) {
      // Every part has its own scale, so the sums are of true values.
      value[0] *= facts.finish[column];
      const int64_t tile_index = int64_t{blockIdx.y} * args.n_tiles + (active ? own : 0);
      complete = join_splits(args, tile_index, split, element, kElements, active, value[0]);
    }
    if (!active || !complete || column >= n_rows) continue;
    const float factor = args.n_splits > 1 ? 1.0F : facts.finish[column];
    const Segment& s = kGated ? args.segments[0] : segment_of(args, own);
    const int64_t o =
        int64_t{own - (kGated ? 0 : s.first_tile)} * kTileRows + owner / 4 + 8 * (j / 2);
    if (o >= s.weight.out) continue;
    const float weight = s.weight.factor == nullptr ? 1.0F : s.weight.factor[0];
    float result = value[0] * factor * weight;
    if constexpr (kGated) {
      const Segment& second = args.segments[1];
      const float up =
          value[1] * factor * (second.weight.factor == nullptr ? 1.0F : second.weight.factor[0]);
      result = activate(args.activation, result) * up;
    } else if (args.finish == Finish::gated) {
      result = activate(args.activation, result);
    }
    finish_value(args, s, first_row + column, o, result);
  }
}

template <int kN, bool kBf16, bool kGated>
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    multiply(const __grid_constant__ SkinnyArgs args) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ RowFacts facts;
  constexpr int kSets = kGated ? 2 : 1;
  constexpr int kElements = 128 * kN;  // of a tile
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int n_warps = args.k_warps * args.tile_warps;
  const int k_warp = warp % args.k_warps;
  const int tile_warp = warp / args.k_warps;
  const int split = static_cast<int>(blockIdx.z);
  const int64_t first_row = int64_t{blockIdx.y} * kN * kColumns;

  // Slices are cut where every format of the launch has a unit's end.
  int align = 1;
  for (int s = 0; s < args.n_segments; ++s)
    align = max(align, unit_groups(args.segments[s].weight.format));
  const int units = args.k / kGroup / align;
  const int split0 = units * split / args.n_splits;
  const int split1 = units * (split + 1) / args.n_splits;
  const int in_split = split1 - split0;
  const int g0 = (split0 + in_split * k_warp / args.k_warps) * align;
  const int g1 = (split0 + in_split * (k_warp + 1) / args.k_warps) * align;

  uint8_t* ring = shared + warp * kStages * args.stage_bytes;
  uint8_t* fragments = shared + n_warps * kStages * args.stage_bytes;
  constexpr int kBytes = fragment_bytes(kBf16);
  auto* sums = reinterpret_cast<float*>(fragments + in_split * align * kN * kBytes);

  const int n_steps = (args.n_tiles + args.tile_warps - 1) / args.tile_warps;
  const int first_step = static_cast<int>(blockIdx.x);
  const int stride = static_cast<int>(gridDim.x);
  Stream<kGated> fetched = {args, g0, g1, first_step, stride, n_steps, tile_warp};
  fetched.group = g0;
  const auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const auto fetch_next = [&](int stage) {
    if (g0 < g1 && !fetched.done()) {
      fetched.fetch(ring_address + static_cast<uint32_t>(stage * args.stage_bytes), lane);
      fetched.next();
    }
    commit_copies();
  };
  start_dependents();
  // Weights do not change, so they may be on their way before the inputs are there.
  for (int stage = 0; stage + 1 < kStages; ++stage)
    fetch_next(stage);
  wait_for_inputs();
  const int n_rows =
      static_cast<int>(min(int64_t{*args.count} - first_row, int64_t{kN} * kColumns));
  if (n_rows <= 0) return wait_copies<0>();
  find_rows<kN>(args, first_row, n_rows, split0 * align * kGroup, split1 * align * kGroup, facts);
  __syncthreads();
  fill_fragments<kN, kBf16>(args, first_row, n_rows, split0 * align, split1 * align, facts,
                            fragments);
  __syncthreads();

  int stage = 0;
  int parity = 0;
  int offset = 0;
  for (int step = first_step; step < n_steps; step += stride) {
    const int tile = step * args.tile_warps + tile_warp;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      Accumulator<kN> acc;
      const Segment& s = kGated ? args.segments[set] : segment_of(args, tile);
      const TileFormat format = s.weight.format;
      for (int group = g0; group < g1;) {
        const int n = min(chunk_groups(format), g1 - group);
        fetch_next((stage + kStages - 1) % kStages);
        wait_copies<kStages - 1>();
        __syncwarp();
        if (tile < args.n_tiles)
          multiply_chunk<kN, kBf16>(format, ring + stage * args.stage_bytes, n,
                                    fragments + (group - split0 * align) * kN * kBytes, lane, acc);
        __syncwarp();
        stage = (stage + 1) % kStages;
        group += n;
      }
      float* mine =
          sums + (((parity * args.tile_warps + tile_warp) * kSets + set) * args.k_warps + k_warp) *
                     kElements;
#pragma unroll
      for (int c = 0; c < kN; ++c)
        *reinterpret_cast<float4*>(mine + c * 128 + lane * 4) =
            make_float4(acc.v[c][0], acc.v[c][1], acc.v[c][2], acc.v[c][3]);
    }
    __syncthreads();
    // Other warps add up each time, so that none of them is always late.
    const int turn = (static_cast<int>(threadIdx.x) + offset) % static_cast<int>(blockDim.x);
    offset += 128;
    const int n_values = args.tile_warps * kElements;
    finish_step<kN, kGated>(args, facts, sums + parity * n_values * kSets * args.k_warps, step,
                            first_row, n_rows, turn);
    parity ^= 1;
  }
  wait_copies<0>();
}

// The number of warps that share k: as many as divide it nearly evenly.
int choose_k_warps(int units, int most) {
  int best = 1;
  double best_share = 0.0;
  for (int warps = 1; warps <= std::min(units, most); ++warps) {
    const double share =
        static_cast<double>(units) / (warps * static_cast<double>((units + warps - 1) / warps));
    if (share >= best_share - 0.04) {
      best = warps;
      best_share = std::max(best_share, share);
    }
  }
  return best;
}

int splits_of(int64_t k, bool bf16) {
  const int most = bf16 ? 48 : kMaxGroups;
  return static_cast<int>((k / kGroup + most - 1) / most);
}

// Bytes of shared memory for kN column blocks.
int shared_bytes(const SkinnyArgs& args, int align, int columns, bool bf16, bool gated) {
  const int units = args.k / kGroup / align;
  const int in_split = (units + args.n_splits - 1) / args.n_splits;
  return args.k_warps * args.tile_warps * kStages * args.stage_bytes +
         in_split * align * columns * fragment_bytes(bf16) +
         2 * args.tile_warps * (gated ? 2 : 1) * args.k_warps * 128 * columns * 4;
}

template <int kN, bool kBf16, bool kGated>
void launch(SkinnyArgs& args, int32_t n_rows, int align, cudaStream_t stream) {
  const int warps = args.k_warps * args.tile_warps;
  const int shared = shared_bytes(args, align, kN, kBf16, kGated);
  auto* kernel = multiply<kN, kBf16, kGated>;
  static const bool prepared = [&] {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxShared) ==
           cudaSuccess;
  }();
  static_cast<void>(prepared);
  const int per_sm = shared <= kMaxShared / 2 && warps <= 8 ? 2 : 1;
  const int n_steps = (args.n_tiles + args.tile_warps - 1) / args.tile_warps;
  const dim3 grid(static_cast<unsigned>(
                      std::min(n_steps, std::max(1, per_sm * multiprocessors() / args.n_splits))),
                  static_cast<unsigned>((n_rows + kN * kColumns - 1) / (kN * kColumns)),
                  static_cast<unsigned>(args.n_splits));
  launch_early(kernel, grid, warps * kWarp, shared, stream, args);
}

template <bool kBf16, bool kGated>
void launch_columns(SkinnyArgs& args, int32_t n_rows, int align, cudaStream_t stream) {
  // The blocks' number changes no bits; more do not fit beside the weights on their way.
  const bool two = n_rows > kColumns && args.n_splits == 1 &&
                   shared_bytes(args, align, 2, kBf16, kGated) <= kMaxShared;
  if (two) return launch<2, kBf16, kGated>(args, n_rows, align, stream);
  launch<1, kBf16, kGated>(args, n_rows, align, stream);
}

}  // namespace

bool fits_one_split(int64_t k, bool bf16) {
  return splits_of(k, bf16) == 1;
}

SkinnyScratch skinny_scratch(int64_t k, int64_t n_tiles, int32_t max_rows, bool bf16) {
  const int64_t splits = splits_of(k, bf16);
  if (splits == 1) return {};
  const int64_t blocks = (max_rows + kColumns - 1) / kColumns;
  return {splits * n_tiles * blocks * 128, n_tiles * blocks};
}

void launch_skinny(SkinnyArgs args, int32_t n_rows, cudaStream_t stream) {
  if (n_rows == 0) return;
  int align = 1;
  args.stage_bytes = 0;
  for (int s = 0; s < args.n_segments; ++s) {
    const TileFormat format = args.segments[s].weight.format;
    align = std::max(align, unit_groups(format));
    args.stage_bytes = std::max(args.stage_bytes, chunk_bytes(format));
  }
  const bool bf16 = args.segments[0].weight.format == TileFormat::bf16;
  const bool gated = args.finish == Finish::gated && args.n_segments == 2;
  args.n_splits = splits_of(args.k, bf16);
  const int units = args.k / kGroup / align / args.n_splits;
  for (int most = kMaxWarps; most > 0; --most) {
    args.k_warps = choose_k_warps(std::max(units, 1), most);
    args.tile_warps = args.n_splits > 1 ? 1 : std::max(1, 8 / args.k_warps);
    if (shared_bytes(args, align, 1, bf16, gated) <= kMaxShared) break;
  }
  if (bf16 && gated) return launch_columns<true, true>(args, n_rows, align, stream);
  if (bf16) return launch_columns<true, false>(args, n_rows, align, stream);
  if (gated) return launch_columns<false, true>(args, n_rows, align, stream);
  launch_columns<false, false>(args, n_rows, align, stream);
}

}  // namespace kapitsa::backend::cuda
