// Mixtures of experts over tiles: the router, the choice with its list of rows by expert, and the
// experts' two projections.
#pragma once

#include "backend/cuda/tiles.h"
#include "backend/cuda/views.h"
#include "plan/primitives.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kapitsa::backend::cuda {

inline constexpr int kMaxListedExperts = 512;

// Which experts the eight rows of a block chose, in rising order, and the slot of each row. All
// three arrays have one part for each block of eight rows.
struct ExpertList {
  int32_t* n_entries;  // (blocks)
  int32_t* experts;    // (blocks, n_experts)
  uint8_t* slots;      // (blocks, n_experts, 8): by expert; 255: the row did not choose it
  int32_t n_experts, top_k;
};

struct RouterView {
  const float* logits;
  const float* bias;
  const float* expert_scale;
  int32_t* ids;
  float* weights;
  plan::RouterScore score;
  int32_t n_experts, top_k, n_groups, top_groups;
  bool renormalise;
  float scale;
};

// logits = W n(x) + bias for an f32 router.
struct GateArgs {
  const int32_t* count;
  const float* x;
  const float* norm_weight;
  const float* weight;  // (out, k)
  const float* bias;
  float* out;  // (rows, out)
  int32_t k, n_out;
  bool has_norm;
  float norm_eps;
};
void launch_gate(const GateArgs& args, int32_t n_rows, cudaStream_t stream);
// The list of a choice that lies in ids (rows, top_k).
void launch_list(const int32_t* count, const int32_t* ids, const ExpertList& list, int32_t n_rows,
                 cudaStream_t stream);
// The choice and its list.
void launch_route(const int32_t* count, const RouterView& router, const ExpertList& list,
                  int32_t n_rows, cudaStream_t stream);

struct ExpertsUpArgs {
  const int32_t* count;
  const float* x;  // (rows, k)
  const float* norm_weight;
  ExpertList list;
  TileView gate, up;                // gate without data: none
  TileView shared_gate, shared_up;  // up without data: no shared expert
  float* inner;                     // (rows, top_k * width)
  float* shared_inner;              // (rows, shared width)
  int32_t k;
  bool has_norm;
  float norm_eps;
  plan::Activation activation;
  int32_t k_warps, tile_warps, stage_bytes;
};
bool fits_experts_up(int64_t k, bool gated, TileFormat a, TileFormat b);
void launch_experts_up(ExpertsUpArgs args, int32_t n_rows, cudaStream_t stream);

struct ExpertsDownArgs {
  const int32_t* count;
  const float* inner;    // (rows, top_k * width)
  const float* weights;  // (rows, top_k)
  const float* shared;   // (rows, shared width)
  const float* mix;      // (rows): the shared expert counts sigmoid of it; nullptr: 1
  ExpertList list;
  TileView down, shared_down;  // shared without data: none
  float* out;                  // (rows, hidden)
  float scale;
  bool accumulate;
  int32_t k_warps, piece_bytes;
};
bool fits_experts_down(int64_t width, int64_t shared_width);
void launch_experts_down(ExpertsDownArgs args, int32_t n_rows, cudaStream_t stream);

}  // namespace kapitsa::backend::cuda
