// The experts' projections. An expert's weights are read once for all rows of a block that chose
// it; the other rows' columns hold zeros or are not stored. A row's sum over its experts runs in
// rising order of the expert, whatever the other rows chose: what they add to it is zero.
#include "backend/cuda/experts.h"
#include "backend/cuda/skinny.cuh"

#include <algorithm>

namespace kapitsa::backend::cuda {
namespace {

constexpr int kMaxWarps = 16;
constexpr int kStages = 3;
constexpr int kDownStages = 6;
constexpr int kMaxShared = 216 * 1024;  // bytes
constexpr int kGroupBytes = fragment_bytes(false);
constexpr int kMaxEntries = 256;  // of the list of a block: eight rows of at most 32 choices

__device__ int64_t block_of_rows() {
  return blockIdx.y;
}

__device__ float factor_of(const TileView& w, int expert) {
  return w.factor == nullptr ? 1.0F : w.factor[w.n_factors == 1 ? 0 : expert];
}

// ---- Up ----

// A virtual tile: first those of the shared expert, then entry after entry.
struct UpTile {
  const TileView* weights[2];
  int expert, entry, tile;  // entry -1: the shared expert
};

__device__ int shared_tiles(const ExpertsUpArgs& args) {
  return args.shared_up.data == nullptr
             ? 0
             : static_cast<int>((args.shared_up.out + kTileRows - 1) / kTileRows);
}

__device__ UpTile resolve(const ExpertsUpArgs& args, const int32_t* experts, int tile) {
  const int n_shared = shared_tiles(args);
  if (tile < n_shared) return {{&args.shared_gate, &args.shared_up}, 0, -1, tile};
  const int per = static_cast<int>((args.up.out + kTileRows - 1) / kTileRows);
  const int entry = (tile - n_shared) / per;
  return {{&args.gate, &args.up}, experts[entry], entry, (tile - n_shared) % per};
}

__device__ void find_scales(const ExpertsUpArgs& args, int64_t first_row, int n_rows,
                            RowFacts& facts) {
  __shared__ RowScratch<kColumns> scratch;
  float largest[kColumns];
  float squares[kColumns];
  find_facts<kColumns>(
      n_rows, 0, args.k,
      [&](int row, int k, float& most, float& sum) {
        float4 v = *reinterpret_cast<const float4*>(args.x + (first_row + row) * args.k + k);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        if (args.norm_weight != nullptr)
          v = times(v, *reinterpret_cast<const float4*>(args.norm_weight + k));
        most = fmaxf(most, largest_of(v));
      },
      scratch, largest, squares);
  const int row = static_cast<int>(threadIdx.x);
  if (row >= kColumns) return;
  const float2 all = row < n_rows ? join_facts(scratch, row) : make_float2(0.0F, 0.0F);
  const int up = scale_exponent(all.x);
  facts.scale[row] = power_of_two(up);
  facts.finish[row] =
      power_of_two(-up) *
      (args.has_norm ? 1.0F / sqrtf(all.y / static_cast<float>(args.k) + args.norm_eps) : 1.0F);
}

// The activations of the block's rows as fragments.
__device__ void fill_rows(const ExpertsUpArgs& args, const RowFacts& facts, int64_t first_row,
                          int n_rows, uint8_t* fragments) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int n_groups = args.k / kGroup;
#pragma unroll 4
  for (int item = warp; item < 2 * n_groups; item += n_warps) {
    const int row = lane / 4;
    write_fragments<false>(fragments + item / 2 * kGroupBytes, item % 2, lane, [&](int in_group) {
      if (row >= n_rows) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      const int k = item / 2 * kGroup + in_group;
      float4 v = *reinterpret_cast<const float4*>(args.x + (first_row + row) * args.k + k);
      if (args.norm_weight != nullptr)
        v = times(v, *reinterpret_cast<const float4*>(args.norm_weight + k));
      return scaled(v, facts.scale[row]);
    });
  }
}

// Adds up what the warps found of a step's tiles, and writes f(gate) * up of the rows that chose
// the expert.
template <bool kGated>
__device__ void finish_up(const ExpertsUpArgs& args, const RowFacts& facts, const float* sums,
                          const int32_t* experts, int step, int n_tiles, int64_t first_row,
                          int n_rows) {
  constexpr int kSets = kGated ? 2 : 1;
  for (int i = static_cast<int>(threadIdx.x); i < args.tile_warps * 128;
       i += static_cast<int>(blockDim.x)) {
    const int which = i / 128;
    const int element = i % 128;
    const int own = step * args.tile_warps + which;
    const int owner = element / 4;
    const int j = element % 4;
    const int column = 2 * (owner % 4) + j % 2;
    if (own >= n_tiles || column >= n_rows) continue;
    const UpTile place = resolve(args, experts, own);
    const int64_t o = int64_t{place.tile} * kTileRows + owner / 4 + 8 * (j / 2);
    if (o >= place.weights[1]->out) continue;
    float* out = nullptr;
    if (place.entry < 0) {
      out = args.shared_inner + (first_row + column) * args.shared_up.out + o;
    } else {
      const uint8_t slot =
          args.list
              .slots[(block_of_rows() * args.list.n_experts + place.expert) * kColumns + column];
      if (slot == 255) continue;
      out = args.inner + ((first_row + column) * args.list.top_k + slot) * args.up.out + o;
    }
    float value[kSets] = {};
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const float* from = sums + (which * kSets + set) * args.k_warps * 128;
#pragma unroll 4
      for (int w = 0; w < args.k_warps; ++w)
        value[set] += from[w * 128 + element];
      value[set] *= facts.finish[column] * factor_of(*place.weights[set + 2 - kSets], place.expert);
    }
    *out = kGated ? activate(args.activation, value[0]) * value[kSets - 1]
                  : activate(args.activation, value[0]);
  }
}

// What a warp fetches next: step, matrix, group.
template <int kSets>
struct UpCursor {
  int step, set, group;

  __device__ void fetch(const ExpertsUpArgs& args, const int32_t* experts, int g0, int g1,
                        int n_tiles, int tile_warp, uint32_t to, int lane) {
    const int tile = step * args.tile_warps + tile_warp;
    int n = g1 - group;
    if (tile < n_tiles) {
      const UpTile source = resolve(args, experts, tile);
      const TileView& w = *source.weights[set];
      n = min(n, chunk_groups(w.format));
      copy_chunk(to, w.data + source.expert * w.matrix_bytes + source.tile * w.tile_bytes, w.format,
                 group, n, lane);
    }
    group += n;
    if (group < g1) return;
    group = g0;
    if (++set < 2) return;
    set = 2 - kSets;
    step += static_cast<int>(gridDim.x);
  }
};

template <bool kGated>
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    experts_up(const __grid_constant__ ExpertsUpArgs args) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ RowFacts facts;
  constexpr int kSets = kGated ? 2 : 1;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int n_warps = args.k_warps * args.tile_warps;
  const int k_warp = warp % args.k_warps;
  const int tile_warp = warp / args.k_warps;
  const int64_t first_row = block_of_rows() * kColumns;
  const int n_groups = args.k / kGroup;
  int align = unit_groups(args.up.format);
  if (args.shared_up.data != nullptr) align = max(align, unit_groups(args.shared_up.format));
  const int units = n_groups / align;
  const int g0 = units * k_warp / args.k_warps * align;
  const int g1 = units * (k_warp + 1) / args.k_warps * align;

  uint8_t* ring = shared + warp * kStages * args.stage_bytes;
  uint8_t* fragments = shared + n_warps * kStages * args.stage_bytes;
  auto* sums = reinterpret_cast<float*>(fragments + n_groups * kGroupBytes);
  const auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));

  start_dependents();
  wait_for_inputs();
  const int n_rows = static_cast<int>(min(int64_t{*args.count} - first_row, int64_t{kColumns}));
  if (n_rows <= 0) return;
  const int per_expert = static_cast<int>((args.up.out + kTileRows - 1) / kTileRows);
  // The list in shared memory: every tile asks for its expert.
  __shared__ int32_t experts[kMaxEntries];
  const int n_entries = args.list.n_entries[block_of_rows()];
  for (int i = static_cast<int>(threadIdx.x); i < n_entries; i += static_cast<int>(blockDim.x))
    experts[i] = args.list.experts[block_of_rows() * args.list.n_experts + i];
  __syncthreads();
  const int n_tiles = shared_tiles(args) + n_entries * per_expert;
  const int n_steps = (n_tiles + args.tile_warps - 1) / args.tile_warps;

  UpCursor<kSets> cursor = {static_cast<int>(blockIdx.x), 2 - kSets, g0};
  const auto fetch_next = [&](int stage) {
    if (g0 < g1 && cursor.step < n_steps)
      cursor.fetch(args, experts, g0, g1, n_tiles, tile_warp,
                   ring_address + static_cast<uint32_t>(stage * args.stage_bytes), lane);
    commit_copies();
  };
  for (int stage = 0; stage + 1 < kStages; ++stage)
    fetch_next(stage);

  find_scales(args, first_row, n_rows, facts);
  __syncthreads();
  fill_rows(args, facts, first_row, n_rows, fragments);
  __syncthreads();

  int stage = 0;
  int parity = 0;
  for (int step = static_cast<int>(blockIdx.x); step < n_steps;
       step += static_cast<int>(gridDim.x)) {
    const int tile = step * args.tile_warps + tile_warp;
    const UpTile source = tile < n_tiles ? resolve(args, experts, tile) : UpTile{};
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      Accumulator<1> acc;
      for (int group = g0; group < g1;) {
        int n = g1 - group;
        if (tile < n_tiles) n = min(n, chunk_groups(source.weights[set + 2 - kSets]->format));
        fetch_next((stage + kStages - 1) % kStages);
        wait_copies<kStages - 1>();
        __syncwarp();
        if (tile < n_tiles) {
          const TileFormat format = source.weights[set + 2 - kSets]->format;
          multiply_chunk<1, false>(format, ring + stage * args.stage_bytes, n,
                                   fragments + group * kGroupBytes, lane, acc);
        }
        __syncwarp();
        stage = (stage + 1) % kStages;
        group += n;
      }
      float* mine =
          sums +
          (((parity * args.tile_warps + tile_warp) * kSets + set) * args.k_warps + k_warp) * 128;
      *reinterpret_cast<float4*>(mine + lane * 4) =
          make_float4(acc.v[0][0], acc.v[0][1], acc.v[0][2], acc.v[0][3]);
    }
    __syncthreads();
    finish_up<kGated>(args, facts, sums + parity * args.tile_warps * kSets * args.k_warps * 128,
                      experts, step, n_tiles, first_row, n_rows);
    parity ^= 1;
  }
  wait_copies<0>();
}

// ---- Down ----

// An entry of the list as a block sees it: its expert, and for each row where its input lies and
// what it counts. The shared expert is the last entry.
struct DownEntry {
  int32_t expert;
  int32_t choice[kColumns];  // index of (row, slot); -1: not chosen
  float weight[kColumns];    // with the factor of the expert's weights
};

__device__ void read_entries(const ExpertsDownArgs& args, int64_t first_row, int n_rows,
                             int n_listed, DownEntry* entries) {
  const int64_t base = block_of_rows() * args.list.n_experts;
  const bool has_shared = args.shared_down.data != nullptr;
  for (int i = static_cast<int>(threadIdx.x); i < (n_listed + (has_shared ? 1 : 0)) * kColumns;
       i += static_cast<int>(blockDim.x)) {
    DownEntry& entry = entries[i / kColumns];
    const int column = i % kColumns;
    const int64_t row = first_row + column;
    if (i / kColumns == n_listed) {
      entry.expert = 0;
      entry.choice[column] = column < n_rows ? static_cast<int32_t>(row) : -1;
      entry.weight[column] =
          column >= n_rows || args.mix == nullptr ? 1.0F : sigmoid(args.mix[row]);
      continue;
    }
    const int expert = args.list.experts[base + i / kColumns];
    const uint8_t slot = args.list.slots[(base + expert) * kColumns + column];
    const int64_t choice = row * args.list.top_k + slot;
    const bool chosen = column < n_rows && slot != 255;
    entry.expert = expert;
    entry.choice[column] = chosen ? static_cast<int32_t>(choice) : -1;
    entry.weight[column] = chosen ? args.weights[choice] * factor_of(args.down, expert) : 0.0F;
  }
  __syncthreads();
}

// The scale of a row from all that it will multiply. The factor of an expert's weights may be left
// out: it is near 1, and the scale has room.
__device__ void find_scales(const ExpertsDownArgs& args, int64_t first_row, int n_rows,
                            RowFacts& facts) {
  __shared__ RowScratch<kColumns> scratch;
  float largest[kColumns];
  float squares[kColumns];
  const auto width = static_cast<int>(args.down.in);
  const int routed = args.list.top_k * width;
  const int all = routed + (args.shared == nullptr ? 0 : static_cast<int>(args.shared_down.in));
  find_facts<kColumns>(
      n_rows, 0, all,
      [&](int column, int k, float& most, float&) {
        const int64_t row = first_row + column;
        const float* from = k < routed ? args.inner + row * routed + k
                                       : args.shared + row * args.shared_down.in + (k - routed);
        float value = largest_of(*reinterpret_cast<const float4*>(from));
        if (k < routed) value *= fabsf(args.weights[row * args.list.top_k + k / width]);
        most = fmaxf(most, value);
      },
      scratch, largest, squares);
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kColumns) return;
  const int up = scale_exponent(column < n_rows ? join_facts(scratch, column).x : 0.0F);
  facts.scale[column] = power_of_two(up);
  facts.finish[column] = power_of_two(-up);
}

// The groups of an entry.
__device__ int groups_of(const ExpertsDownArgs& args, int entry, int n_listed) {
  return static_cast<int>((entry == n_listed ? args.shared_down : args.down).in) / kGroup;
}

// The activations of entries begin to end as fragments, one entry after another.
__device__ void fill_batch(const ExpertsDownArgs& args, const RowFacts& facts,
                           const DownEntry* entries, int begin, int end, int n_listed,
                           uint8_t* fragments) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int base = 0;
  for (int entry = begin; entry < end; ++entry) {
    const float* from = entry == n_listed ? args.shared : args.inner;
    const int64_t width = (entry == n_listed ? args.shared_down : args.down).in;
    const int column = lane / 4;
    const int32_t choice = entries[entry].choice[column];
    const float factor = entries[entry].weight[column] * facts.scale[column];
#pragma unroll 2
    for (int item = warp; item < 2 * groups_of(args, entry, n_listed); item += args.k_warps) {
      write_fragments<false>(
          fragments + (base + item / 2) * kGroupBytes, item % 2, lane, [&](int in_group) {
            if (choice < 0) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            return scaled(*reinterpret_cast<const float4*>(from + choice * width +
                                                           item / 2 * kGroup + in_group),
                          factor);
          });
    }
    base += groups_of(args, entry, n_listed);
  }
}

// Adds up what the warps found of a tile and writes it.
__device__ void store_tile(const ExpertsDownArgs& args, const RowFacts& facts, const float* sums,
                           int tile, int64_t first_row, int n_rows) {
  for (int element = static_cast<int>(threadIdx.x); element < 128;
       element += static_cast<int>(blockDim.x)) {
    const int owner = element / 4;
    const int j = element % 4;
    const int column = 2 * (owner % 4) + j % 2;
    const int64_t o = int64_t{tile} * kTileRows + owner / 4 + 8 * (j / 2);
    if (column >= n_rows || o >= args.down.out) continue;
    float value = 0.0F;
#pragma unroll 4
    for (int w = 0; w < args.k_warps; ++w)
      value += sums[w * 128 + element];
    value *= facts.finish[column] * args.scale;
    float* out = args.out + (first_row + column) * args.down.out + o;
    *out = args.accumulate ? *out + value : value;
  }
}

// A block for a tile of the output: its warps share the groups of each entry, and the entries come
// in batches whose activations fit into shared memory.
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    experts_down(const __grid_constant__ ExpertsDownArgs args, int batch_groups) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ RowFacts facts;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first_row = block_of_rows() * kColumns;
  uint8_t* ring = shared + warp * kDownStages * args.piece_bytes;
  uint8_t* fragments = shared + args.k_warps * kDownStages * args.piece_bytes;
  auto* sums = reinterpret_cast<float*>(fragments + batch_groups * kGroupBytes);
  const auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  start_dependents();
  wait_for_inputs();
  const int n_rows = static_cast<int>(min(int64_t{*args.count} - first_row, int64_t{kColumns}));
  if (n_rows <= 0) return;
  __shared__ DownEntry entries[kMaxEntries / 2 + 1];
  const int n_listed = args.list.n_entries[block_of_rows()];
  const int n_entries = n_listed + (args.shared_down.data != nullptr ? 1 : 0);
  const auto n_tiles = static_cast<int>(tiles_of(args.down.out));
  read_entries(args, first_row, n_rows, n_listed, entries);
  const auto weights_of = [&](int entry) -> const TileView& {
    return entry == n_listed ? args.shared_down : args.down;
  };
  const auto first_group = [&](int entry, int w) {
    return groups_of(args, entry, n_listed) * w / args.k_warps;
  };
  // What is fetched next.
  int at_tile = static_cast<int>(blockIdx.x);
  int at_entry = 0;
  int at_group = first_group(0, warp);
  const auto fetch_next = [&](int stage) {
    bool found = false;
    while (!found && at_tile < n_tiles) {
      if (at_group < first_group(at_entry, warp + 1)) {
        const TileView& w = weights_of(at_entry);
        copy_chunk(ring_address + static_cast<uint32_t>(stage * args.piece_bytes),
                   w.data + entries[at_entry].expert * w.matrix_bytes + at_tile * w.tile_bytes,
                   w.format, at_group, 1, lane);
        ++at_group;
        found = true;
      } else {
        if (++at_entry == n_entries) {
          at_entry = 0;
          at_tile += static_cast<int>(gridDim.x);
        }
        at_group = first_group(at_entry, warp);
      }
    }
    commit_copies();
  };
  for (int stage = 0; stage + 1 < kDownStages; ++stage)
    fetch_next(stage);
  find_scales(args, first_row, n_rows, facts);
  __syncthreads();
  int stage = 0;
  int filled = -1;  // first entry of the batch in shared memory
  for (int tile = static_cast<int>(blockIdx.x); tile < n_tiles;
       tile += static_cast<int>(gridDim.x)) {
    Accumulator<1> acc;
    for (int begin = 0; begin < n_entries;) {
      int end = begin;
      int groups = 0;
      while (end < n_entries) {
        const int n = groups_of(args, end, n_listed);
        if (end > begin && groups + n > batch_groups) break;
        groups += n;
        ++end;
      }
      if (filled != begin || end - begin < n_entries) {
        __syncthreads();
        fill_batch(args, facts, entries, begin, end, n_listed, fragments);
        filled = begin;
        __syncthreads();
      }
      int base = 0;
      for (int entry = begin; entry < end; ++entry) {
        const TileFormat format = weights_of(entry).format;
        for (int group = first_group(entry, warp); group < first_group(entry, warp + 1); ++group) {
          fetch_next((stage + kDownStages - 1) % kDownStages);
          wait_copies<kDownStages - 1>();
          __syncwarp();
          const uint8_t* piece = ring + stage * args.piece_bytes;
          const GroupInput in[1] = {{fragments + (base + group) * kGroupBytes, lane}};
          const UnitProduct<1, false> product = {piece, piece + record_bytes(format), lane};
          product.add(format, in, acc);
          __syncwarp();
          stage = (stage + 1) % kDownStages;
        }
        base += groups_of(args, entry, n_listed);
      }
      begin = end;
    }
    __syncthreads();
    *reinterpret_cast<float4*>(sums + warp * 128 + lane * 4) =
        make_float4(acc.v[0][0], acc.v[0][1], acc.v[0][2], acc.v[0][3]);
    __syncthreads();
    store_tile(args, facts, sums, tile, first_row, n_rows);
  }
  wait_copies<0>();
}

int up_shared(int k, int k_warps, int tile_warps, int stage_bytes, bool gated) {
  return k_warps * tile_warps * kStages * stage_bytes + k / kGroup * kGroupBytes +
         2 * tile_warps * (gated ? 2 : 1) * k_warps * 512;
}

// Warps that share k: as many as divide it nearly evenly (as in skinny.cu).
int choose_k_warps(int units) {
  int best = 1;
  double best_share = 0.0;
  for (int warps = 1; warps <= std::min(units, kMaxWarps); ++warps) {
    const double share =
        static_cast<double>(units) / (warps * static_cast<double>((units + warps - 1) / warps));
    if (share >= best_share - 0.04) {
      best = warps;
      best_share = std::max(best_share, share);
    }
  }
  return best;
}

constexpr int kBatchGroups = 96;  // of activations in shared memory for the down projection

}  // namespace

bool fits_experts_up(int64_t k, bool gated, TileFormat a, TileFormat b) {
  const int align = std::max(unit_groups(a), unit_groups(b));
  const int stage = std::max(chunk_bytes(a), chunk_bytes(b));
  if (k % (kGroup * align) != 0) return false;
  const int warps = choose_k_warps(static_cast<int>(k) / kGroup / align);
  return up_shared(static_cast<int>(k), warps, std::max(1, 8 / warps), stage, gated) <= kMaxShared;
}

bool fits_experts_down(int64_t width, int64_t shared_width) {
  return width % kGroup == 0 && shared_width % kGroup == 0 && width / kGroup <= kBatchGroups &&
         shared_width / kGroup <= kBatchGroups;
}

void launch_experts_up(ExpertsUpArgs args, int32_t n_rows, cudaStream_t stream) {
  if (n_rows == 0) return;
  const bool gated = args.gate.data != nullptr;
  const bool shared = args.shared_up.data != nullptr;
  int align = unit_groups(args.up.format);
  args.stage_bytes = chunk_bytes(args.up.format);
  for (const TileView* w : {&args.gate, &args.shared_gate, &args.shared_up}) {
    if (w->data == nullptr) continue;
    align = std::max(align, unit_groups(w->format));
    args.stage_bytes = std::max(args.stage_bytes, chunk_bytes(w->format));
  }
  args.k_warps = choose_k_warps(args.k / kGroup / align);
  args.tile_warps = std::max(1, 8 / args.k_warps);
  const int bytes = up_shared(args.k, args.k_warps, args.tile_warps, args.stage_bytes, gated);
  const int64_t most =
      (shared ? tiles_of(args.shared_up.out) : 0) +
      int64_t{std::min(args.list.n_experts, kColumns * args.list.top_k)} * tiles_of(args.up.out);
  const int warps = args.k_warps * args.tile_warps;
  const int per_sm = bytes <= kMaxShared / 2 && warps <= 8 ? 2 : 1;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(
                      (most + args.tile_warps - 1) / args.tile_warps, per_sm * multiprocessors())),
                  static_cast<unsigned>((n_rows + kColumns - 1) / kColumns));
  static const bool prepared = [] {
    return cudaFuncSetAttribute(experts_up<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kMaxShared) == cudaSuccess &&
           cudaFuncSetAttribute(experts_up<false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kMaxShared) == cudaSuccess;
  }();
  static_cast<void>(prepared);
  launch_early(gated ? experts_up<true> : experts_up<false>, grid, warps * kWarp, bytes, stream,
               args);
}

void launch_experts_down(ExpertsDownArgs args, int32_t n_rows, cudaStream_t stream) {
  if (n_rows == 0) return;
  const auto piece = [](const TileView& w) {
    return record_bytes(w.format) + tail_bytes(w.format);
  };
  args.piece_bytes = piece(args.down);
  int groups = static_cast<int>(args.down.in) / kGroup;
  if (args.shared_down.data != nullptr) {
    args.piece_bytes = std::max(args.piece_bytes, piece(args.shared_down));
    groups = std::max(groups, static_cast<int>(args.shared_down.in) / kGroup);
  }
  args.k_warps = std::min(kMaxWarps, std::max(static_cast<int>(args.down.in) / kGroup, 4));
  if (args.k_warps > 8) args.k_warps = choose_k_warps(static_cast<int>(args.down.in) / kGroup);
  // A batch never cuts an entry.
  const int batch = std::max(groups, kBatchGroups);
  const int bytes = args.k_warps * (kDownStages * args.piece_bytes + 512) + batch * kGroupBytes;
  static const bool prepared = [] {
    return cudaFuncSetAttribute(experts_down, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kMaxShared) == cudaSuccess;
  }();
  static_cast<void>(prepared);
  const dim3 grid(
      static_cast<unsigned>(std::min<int64_t>(tiles_of(args.down.out), multiprocessors())),
      static_cast<unsigned>((n_rows + kColumns - 1) / kColumns));
  launch_early(experts_down, grid, args.k_warps * kWarp, bytes, stream, args, batch);
}

}  // namespace kapitsa::backend::cuda
