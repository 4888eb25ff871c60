// Writes tiles (tiles.h) from the encoding of the file, on the card, a thread for each element or
// scale. Nothing is rounded: codes and scales only move.
#include "backend/cuda/decode.cuh"
#include "backend/cuda/repack.h"

namespace kapitsa::backend::cuda {
namespace {

constexpr int kThreads = 256;

__device__ uint32_t half_bits(const uint8_t* p) {
  return *reinterpret_cast<const uint16_t*>(p);
}

// Encodings whose codes are signed have no offset, and the others no negative codes.
__device__ bool is_signed(const WeightView& w) {
  switch (w.dtype) {
  case DType::q5_1:
  case DType::q5_k:
  case DType::q2_k: return false;
  case DType::grouped: return w.group.mode != GroupMode::affine;
  default: return true;
  }
}

// The unsigned code of an element.
__device__ uint32_t code_bits(const WeightView& w, const WeightRow& row, int64_t k,
                              const Coded& coded) {
  switch (w.dtype) {
  case DType::q4_0: return static_cast<uint32_t>(static_cast<int>(coded.code) + 8);
  case DType::q4_1:
  case DType::q4_k: return static_cast<uint32_t>(static_cast<int>(coded.code));
  case DType::q6_k: return static_cast<uint32_t>(static_cast<int>(coded.code) + 32);
  case DType::f16:
  case DType::bf16: return half_bits(row.codes + 2 * k);
  default: return static_cast<uint32_t>(static_cast<int>(coded.code) + (is_signed(w) ? 128 : 0));
  }
}

// A thread for each (unit, group, lane, step); writes all bits of its eight elements.
__global__ void repack_codes(WeightView w, TileFormat format, uint8_t* out, int64_t tile_bytes) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t groups = w.in / kGroup;
  const int64_t per_tile = groups * 128;
  const int64_t tiles = tiles_of(w.out);
  const int64_t tile = index / per_tile;
  if (tile >= w.experts * tiles) return;
  const auto rest = static_cast<int>(index % per_tile);
  const int group = rest / 128;
  const int step = rest % 128 / 32;
  const int lane = rest % 32;
  const int per_unit = unit_groups(format);
  const int64_t expert = tile / tiles;
  uint8_t* unit = out + tile * tile_bytes + group / per_unit * int64_t{unit_bytes(format)};
  uint32_t low = 0;   // eight nibbles
  uint32_t high = 0;  // bits 4 and 5 of q6_k
  uint64_t bytes = 0;
  uint16_t halves[8] = {};
  for (int e = 0; e < 8; ++e) {
    const int reg = e / 2;
    const int upper = e % 2;
    const int64_t row = tile % tiles * kTileRows + lane / 4 + 8 * (reg % 2);
    const int64_t k = int64_t{group} * kGroup + 16 * step + 4 * (lane % 4) + 2 * (reg / 2) + upper;
    uint32_t code = format == TileFormat::q8_0 || format == TileFormat::wide ? 128U : 0U;
    if (row < w.out) {
      const WeightRow r = row_of(w, expert, row);
      code = code_bits(w, r, k, coded_at(w, r, k));
    }
    low |= (code & 15U) << (4 * reg + 16 * upper);
    high |= (code >> 4 & 3U) << (2 * (4 * (step % 2) + reg) + 16 * upper);
    bytes |= static_cast<uint64_t>(code & 255U) << (8 * e);
    halves[e] = static_cast<uint16_t>(code);
  }
  const int in_unit = group % per_unit;
  switch (format) {
  case TileFormat::q4_0:
  case TileFormat::q4_1: *reinterpret_cast<uint32_t*>(unit + lane * 16 + step * 4) = low; break;
  case TileFormat::q4_k:
    *reinterpret_cast<uint32_t*>(unit + in_unit * 576 + lane * 16 + step * 4) = low;
    break;
  case TileFormat::q6_k:
    *reinterpret_cast<uint32_t*>(unit + in_unit * 832 + lane * 16 + step * 4) = low;
    // Two steps share a word; each writes its half of both halves.
    {
      uint8_t* word = unit + in_unit * 832 + 512 + lane * 8 + step / 2 * 4;
      word[step % 2] = static_cast<uint8_t>(high >> (8 * (step % 2)));
      word[2 + step % 2] = static_cast<uint8_t>(high >> (16 + 8 * (step % 2)));
    }
    break;
  case TileFormat::q8_0:
  case TileFormat::wide:
    *reinterpret_cast<uint64_t*>(unit + step / 2 * 512 + lane * 16 + step % 2 * 8) = bytes;
    break;
  case TileFormat::f16:
  case TileFormat::bf16:
    *reinterpret_cast<uint4*>(unit + step * 512 + lane * 16) = *reinterpret_cast<uint4*>(halves);
    break;
  case TileFormat::none: break;
  }
}

// A thread for each (tile, group, row, step): its scales.
__global__ void repack_scales(WeightView w, TileFormat format, uint8_t* out, int64_t tile_bytes) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t groups = w.in / kGroup;
  const int64_t per_tile = groups * 64;
  const int64_t tiles = tiles_of(w.out);
  const int64_t tile = index / per_tile;
  if (tile >= w.experts * tiles) return;
  const auto rest = static_cast<int>(index % per_tile);
  const int group = rest / 64;
  const int step = rest % 4;
  const int row = rest % 64 / 4;
  const int g = row % 8;
  const int upper = row / 8;
  const int per_unit = unit_groups(format);
  const int in_unit = group % per_unit;
  uint8_t* unit = out + tile * tile_bytes + group / per_unit * int64_t{unit_bytes(format)};
  const int64_t o = tile % tiles * kTileRows + row;
  const int64_t k = int64_t{group} * kGroup + 16 * step;
  const bool present = o < w.out;
  const WeightRow r = row_of(w, tile / tiles, present ? o : 0);
  const int half = step / 2;
  const auto put_half = [&](uint8_t* at, int i, uint32_t bits) {
    reinterpret_cast<uint16_t*>(at)[i] = static_cast<uint16_t>(present ? bits : 0U);
  };
  switch (format) {
  case TileFormat::q4_0:
  case TileFormat::q8_0: {
    const int block = format == TileFormat::q4_0 ? 18 : 34;
    uint8_t* at = unit + (format == TileFormat::q4_0 ? 512 : 1024) + g * 8;
    if (step % 2 == 0) put_half(at, 2 * upper + half, half_bits(r.codes + k / 32 * block));
    break;
  }
  case TileFormat::q4_1:
    if (step % 2 == 0) {
      put_half(unit + 512 + g * 16, 2 * upper + half, half_bits(r.codes + k / 32 * 20));
      put_half(unit + 512 + g * 16, 4 + 2 * upper + half, half_bits(r.codes + k / 32 * 20 + 2));
    }
    break;
  case TileFormat::q4_k: {
    const uint8_t* block = r.codes + k / 256 * 144;
    if (step % 2 == 0) {
      const weights::KScaleMin sm = weights::k_scale_min(block + 4, static_cast<int>(k % 256) / 32);
      uint8_t* at = unit + in_unit * 576 + 512 + g * 8;
      at[2 * upper + half] = present ? sm.scale : 0;
      at[4 + 2 * upper + half] = present ? sm.min : 0;
    }
    if (in_unit == 0 && step == 0) {
      put_half(unit + 4 * 576 + g * 8, 2 * upper, half_bits(block));
      put_half(unit + 4 * 576 + g * 8, 2 * upper + 1, half_bits(block + 2));
    }
    break;
  }
  case TileFormat::q6_k: {
    const uint8_t* block = r.codes + k / 256 * 210;
    unit[in_unit * 832 + 768 + g * 8 + 4 * upper + step] =
        present ? block[192 + static_cast<int>(k % 256) / 16] : 0;
    if (in_unit == 0 && step == 0) put_half(unit + 4 * 832 + g * 4, upper, half_bits(block + 208));
    break;
  }
  case TileFormat::wide: {
    Coded coded = coded_at(w, r, k);
    if (is_signed(w)) coded.offset = -128.0F * coded.scale;
    auto* at = reinterpret_cast<float2*>(unit + 1024 + step * 128 + g * 16);
    at[upper] = present ? make_float2(coded.scale, coded.offset) : make_float2(0.0F, 0.0F);
    break;
  }
  case TileFormat::f16:
  case TileFormat::bf16:
  case TileFormat::none: break;
  }
}

unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

}  // namespace

void repack(const WeightView& raw, TileFormat format, uint8_t* out, cudaStream_t stream) {
  const int64_t tiles = raw.experts * tiles_of(raw.out);
  const int64_t groups = raw.in / kGroup;
  const int64_t bytes = tile_bytes(format, raw.in);
  repack_codes<<<blocks_for(tiles * groups * 128), kThreads, 0, stream>>>(raw, format, out, bytes);
  repack_scales<<<blocks_for(tiles * groups * 64), kThreads, 0, stream>>>(raw, format, out, bytes);
}

}  // namespace kapitsa::backend::cuda
