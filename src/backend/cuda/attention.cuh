// What the attention kernels share: entries of a cache, and the keys of a row. Keys are counted by
// an index: first the committed positions, then the row's path through the pass, then, where the
// mask shows them, later rows of its sequence. Without gaps the index of a key is its position, and
// partial sums are cut at multiples of kAttentionSplit of it.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/ops.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kapitsa::backend::cuda {

inline constexpr int kMaxDim = 512;
inline constexpr int kSplit = plan::kAttentionSplit;

// A block of an 8-bit cache (base/q8_block.h): f16 scale, then 32 codes.
inline constexpr int kQ8Bytes = 34;

__device__ inline float load(const StateView& state, int64_t i) {
  if (state.dtype == DType::q8_0) {
    const uint8_t* block = state.data + i / kWarp * kQ8Bytes;
    return __half2float(*reinterpret_cast<const __half*>(block)) *
           static_cast<float>(static_cast<int8_t>(block[2 + i % kWarp]));
  }
  if (state.dtype == DType::f32) return reinterpret_cast<const float*>(state.data)[i];
  if (state.dtype == DType::f16)
    return __half2float(reinterpret_cast<const __half*>(state.data)[i]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(state.data)[i]);
}

// All lanes of a warp store 32 elements in a row, or some of them where there are no blocks.
__device__ inline void store_block(const StateView& state, int64_t i, float value) {
  const float largest = warp_max(fabsf(value));
  const float poison = warp_sum(value - value);
  const __half scale = __float2half_rn(__fadd_rn(__fdiv_rn(largest, 127.0F), poison));
  const float step = __half2float(scale);
  uint8_t* block = state.data + i / kWarp * kQ8Bytes;
  float code = 0.0F;
  if (step > 0.0F && step <= 65504.0F) {
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: the lowest bit is 1
    code = __fadd_rn(__fadd_rn(__fdiv_rn(value, step), kRound), -kRound);
    code = fminf(fmaxf(code, -127.0F), 127.0F);
  }
  block[2 + i % kWarp] = static_cast<uint8_t>(static_cast<int8_t>(code));
  if (i % kWarp == 0) *reinterpret_cast<__half*>(block) = scale;
}

__device__ inline void store(const StateView& state, int64_t i, float value) {
  if (state.dtype == DType::q8_0) return store_block(state, i, value);
  if (state.dtype == DType::f32) {
    reinterpret_cast<float*>(state.data)[i] = value;
  } else if (state.dtype == DType::f16) {
    reinterpret_cast<__half*>(state.data)[i] = __float2half_rn(value);
  } else {
    reinterpret_cast<__nv_bfloat16*>(state.data)[i] = __float2bfloat16_rn(value);
  }
}

// The m-th ancestor of a row, itself for 0.
__device__ inline int ancestor(const PassView& pass, int row, int m) {
  if (pass.counts[PassView::kChain] != 0) return row - m;
  for (; m > 0; --m)
    row = pass.parents[row];
  return row;
}

struct Key {
  int32_t position, slot;
};

// What one row may look at.
struct RowKeys {
  int32_t row, view, committed, depth, n_path;

  __device__ RowKeys(const PassView& pass, int r) {
    row = r;
    view = pass.sequences[r];
    committed = pass.committed[view];
    depth = pass.depth[r];
    n_path = committed + depth + 1;
  }
  __device__ Key path(const PassView& pass, int j) const {
    if (j < committed) {
      const int page = pass.pages[pass.first_page[view] + j / pass.page_tokens];
      return {j, page * pass.page_tokens + j % pass.page_tokens};
    }
    const int a = ancestor(pass, row, depth - (j - committed));
    return {pass.positions[a], pass.slots[a]};
  }
};

struct AttendView {
  HeadsView q, out;
  StateView k_cache, v_cache;
  const float* sinks;
  const int32_t* selection;  // (rows, n_selected)
  int32_t n_kv_heads, window, mask, block, n_selected, selection_block;
  float scale, softcap;
};

__device__ inline bool is_visible(const AttendView& a, const int32_t* selection, int32_t position,
                                  int32_t start) {
  if (position < start) return false;
  if (selection == nullptr) return true;
  const int32_t block = position / a.selection_block;
  for (int i = 0; i < a.n_selected; ++i) {
    if (selection[i] == block) return true;
  }
  return false;
}

// Key j of a row, or slot -1 where the row does not see it.
__device__ inline int32_t visible_slot(const PassView& pass, const AttendView& a,
                                       const RowKeys& keys, const int32_t* selection, int32_t start,
                                       int j) {
  Key key = {};
  if (j < keys.n_path) {
    key = keys.path(pass, j);
  } else {
    const int other = keys.row + 1 + j - keys.n_path;
    key = {pass.positions[other], pass.slots[other]};
    const bool same_block = a.mask == static_cast<int>(plan::Mask::block) && a.block > 0 &&
                            key.position / a.block == pass.positions[keys.row] / a.block;
    if (a.mask != static_cast<int>(plan::Mask::bidirectional) && !same_block) return -1;
  }
  return is_visible(a, selection, key.position, start) ? key.slot : -1;
}

// Keys of a row by index, and the first position that its window shows.
struct Range {
  int n_keys, start;

  __device__ Range(const PassView& pass, const AttendView& a, const RowKeys& keys) {
    const int later =
        a.mask == static_cast<int>(plan::Mask::causal) ? 0 : pass.end_row[keys.view] - keys.row - 1;
    n_keys = keys.n_path + later;
    const int last = a.mask == static_cast<int>(plan::Mask::bidirectional)
                         ? keys.committed
                         : pass.positions[keys.row];
    start = a.window > 0 ? last - a.window + 1 : 0;
  }
  // The first split that may hold a visible key: before the window's start lie committed keys only,
  // whose index is their position.
  __device__ int first_split(const RowKeys& keys) const {
    return max(min(start, keys.committed), 0) / kSplit;
  }
};

AttendView view_of(const Context& context, const plan::Attend& op);

}  // namespace kapitsa::backend::cuda
