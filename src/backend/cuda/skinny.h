// Projections of few rows by tensor cores: what a launch needs to know, and how the work is split.
// The split depends on the shape of the weights alone (invariant 1).
#pragma once

#include "backend/cuda/tiles.h"
#include "backend/cuda/views.h"
#include "plan/types.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kapitsa::backend::cuda {

inline constexpr int kMaxSegments = 6;

// How results leave: stored; added to what is there; or, of two segments whose tiles go in pairs,
// f(first) * second.
enum class Finish : uint8_t { store, add, gated };

// One matrix of a launch and where its results go.
struct Segment {
  TileView weight;
  const float* bias;
  float* out;
  int64_t out_stride;  // from row to row
  int32_t first_tile;  // in the launch
};

struct SkinnyArgs {
  const int32_t* count;  // rows
  const float* x;        // (rows, k)
  const float* norm_weight;
  float norm_eps;
  bool has_norm;
  int32_t k;
  int32_t n_segments, n_tiles;  // gated: pairs
  Segment segments[kMaxSegments];
  Finish finish;
  plan::Activation activation;
  float scale, softcap;  // of the result; softcap 0: none
  // Sums of a part of k, (splits, tiles, columns, 16), and a counter for each tile, at 0.
  float* partial;
  int32_t* counters;
  // How the work is split.
  int32_t n_splits, k_warps, tile_warps, stage_bytes;
};

// Floats of `partial` and counters that a launch of these sizes needs; 0 without splits.
struct SkinnyScratch {
  int64_t partial = 0, counters = 0;
};
SkinnyScratch skinny_scratch(int64_t k, int64_t n_tiles, int32_t max_rows, bool bf16);
// Whether blocks need not share k; gated launches must not.
bool fits_one_split(int64_t k, bool bf16);

// Fills in the split and launches for n_rows rows. `early`: may start before the kernel in front
// ends (its inputs are waited for).
void launch_skinny(SkinnyArgs args, int32_t n_rows, cudaStream_t stream);

}  // namespace kapitsa::backend::cuda
