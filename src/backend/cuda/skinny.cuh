// What the kernels of skinny.cu and experts.cu share: copies into shared memory, the start of
// dependent kernels, and activations as f16 fragments.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/tile_product.cuh"

namespace kapitsa::backend::cuda {

__device__ inline void copy_async(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

inline constexpr int kMaxBlockWarps = 20;

// Starts the copy of n groups from `group` on, which lie in one unit where it has a tail.
__device__ inline void copy_chunk(uint32_t to, const uint8_t* tile, TileFormat format, int group,
                                  int n, int lane) {
  const int per_unit = unit_groups(format);
  const int record = record_bytes(format);
  const uint8_t* unit = tile + group / per_unit * unit_bytes(format);
  const uint8_t* from = unit + group % per_unit * record;
  const int bytes = n * record;
  for (int at = lane * 16; at < bytes; at += kWarp * 16)
    copy_async(to + static_cast<uint32_t>(at), from + at);
  const int tail = lane * 16;
  if (tail < tail_bytes(format))
    copy_async(to + static_cast<uint32_t>(bytes + tail), unit + per_unit * record + tail);
}

// What the block knows of its rows.
struct RowFacts {
  float scale[4 * kColumns];   // of the f16 activations, a power of two
  float finish[4 * kColumns];  // by which results are multiplied: 1 / scale, and the norm's factor
};

__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

__device__ inline uint32_t pack(float a, float b, bool bf16) {
  if (bf16) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  const __half2 v = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline float2 unpack(uint32_t bits, bool bf16) {
  if (bf16) return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
  return halves(bits);
}

// Sixteen bytes of fragments: this lane's part of steps 2 plane and 2 plane + 1 of one group and
// one column block, and the steps' sums. values(k) gives four activations from k on, scaled; k
// counts from the group's start. All lanes of the warp call it.
template <bool kBf16, typename Values>
__device__ void write_fragments(uint8_t* base, int plane, int lane, Values values) {
  uint32_t high[4];
  uint32_t low[4];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float4 v = values(16 * (2 * plane + s) + 4 * (lane % 4));
    high[2 * s] = pack(v.x, v.y, kBf16);
    high[2 * s + 1] = pack(v.z, v.w, kBf16);
    const float2 a = unpack(high[2 * s], kBf16);
    const float2 b = unpack(high[2 * s + 1], kBf16);
    if constexpr (kBf16) {
      low[2 * s] = pack(v.x - a.x, v.y - a.y, true);
      low[2 * s + 1] = pack(v.z - b.x, v.w - b.y, true);
    } else {
      float sum = a.x + a.y + b.x + b.y;
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (lane % 4 == 0)
        reinterpret_cast<float*>(base + kFragmentBytes)[(2 * plane + s) * kColumns + lane / 4] =
            sum;
    }
  }
  *reinterpret_cast<uint4*>(base + plane * 512 + lane * 16) =
      make_uint4(high[0], high[1], high[2], high[3]);
  if constexpr (kBf16)
    *reinterpret_cast<uint4*>(base + kFragmentBytes + plane * 512 + lane * 16) =
        make_uint4(low[0], low[1], low[2], low[3]);
}

__device__ inline float largest_of(const float4& v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// Shared memory for finding the facts of up to kRows rows.
template <int kRows>
struct RowScratch {
  float largest[kMaxBlockWarps][kRows];
  float squares[kMaxBlockWarps][kRows];
};

// Finds the scale of each row from the largest of values(row, k), and its norm from the sum of
// their squares before the norm's weight; k runs over [from, to) in steps of four. The whole block
// works on each row, because one row alone would wait for its loads one after another.
template <int kRows, typename Values>
__device__ void find_facts(int n_rows, int from, int to, Values values, RowScratch<kRows>& scratch,
                           float (&largest)[kRows], float (&squares)[kRows]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int stride = 4 * static_cast<int>(blockDim.x);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    largest[row] = 0.0F;
    squares[row] = 0.0F;
    if (row >= n_rows) continue;
#pragma unroll 4
    for (int k = from + 4 * static_cast<int>(threadIdx.x); k < to; k += stride)
      values(row, k, largest[row], squares[row]);
    largest[row] = warp_max(largest[row]);
    squares[row] = warp_sum(squares[row]);
    if (lane == 0) {
      scratch.largest[warp][row] = largest[row];
      scratch.squares[warp][row] = squares[row];
    }
  }
  __syncthreads();
}

// What the warps found of a row, in their order.
template <int kRows>
__device__ float2 join_facts(const RowScratch<kRows>& scratch, int row) {
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  float2 all = make_float2(0.0F, 0.0F);
  for (int w = 0; w < n_warps; ++w) {
    all.x = fmaxf(all.x, scratch.largest[w][row]);
    all.y += scratch.squares[w][row];
  }
  return all;
}

// The power of two that brings `largest` to 2^13..2^14, as an exponent.
__device__ inline int scale_exponent(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return largest > 0 ? min(max(13 - exponent, -126), 126) : 0;
}

template <TileFormat kFormat, int kN, bool kBf16>
__device__ void multiply_groups(const uint8_t* chunk, int n, const uint8_t* fragments, int lane,
                                Accumulator<kN>& acc) {
  constexpr int kBytes = fragment_bytes(kBf16);
  const auto one = [&](int i) {
    GroupInput in[kN];
#pragma unroll
    for (int c = 0; c < kN; ++c)
      in[c] = {fragments + (i * kN + c) * kBytes, lane};
    const UnitProduct<kN, kBf16> product = {chunk + i * record_bytes(kFormat),
                                            chunk + n * record_bytes(kFormat), lane};
    product.add(kFormat, in, acc);
  };
  // All groups of a full chunk at once, so that their loads and products overlap.
  if (n == chunk_groups(kFormat)) {
#pragma unroll
    for (int i = 0; i < chunk_groups(kFormat); ++i)
      one(i);
  } else {
    for (int i = 0; i < n; ++i)
      one(i);
  }
}

// acc += the n groups of a chunk in the ring; `fragments` are those of its first group.
template <int kN, bool kBf16>
__device__ void multiply_chunk(TileFormat format, const uint8_t* chunk, int n,
                               const uint8_t* fragments, int lane, Accumulator<kN>& acc) {
  if constexpr (kBf16) {
    multiply_groups<TileFormat::bf16, kN, true>(chunk, n, fragments, lane, acc);
  } else {
    switch (format) {
    case TileFormat::q4_0:
      multiply_groups<TileFormat::q4_0, kN, false>(chunk, n, fragments, lane, acc);
      break;
    case TileFormat::q4_1:
      multiply_groups<TileFormat::q4_1, kN, false>(chunk, n, fragments, lane, acc);
      break;
    case TileFormat::q4_k:
      multiply_groups<TileFormat::q4_k, kN, false>(chunk, n, fragments, lane, acc);
      break;
    case TileFormat::q6_k:
      multiply_groups<TileFormat::q6_k, kN, false>(chunk, n, fragments, lane, acc);
      break;
    case TileFormat::q8_0:
      multiply_groups<TileFormat::q8_0, kN, false>(chunk, n, fragments, lane, acc);
      break;
    case TileFormat::wide:
      multiply_groups<TileFormat::wide, kN, false>(chunk, n, fragments, lane, acc);
      break;
    default: multiply_groups<TileFormat::f16, kN, false>(chunk, n, fragments, lane, acc); break;
    }
  }
}

}  // namespace kapitsa::backend::cuda
