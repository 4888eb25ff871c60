#include "backend/cpu/cache.h"

#include "base/half.h"
#include "base/q8_block.h"

#include <algorithm>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

// ---- q8_0 ----

constexpr int64_t kQuad = 4;  // codes that always lie together

// Where a block of a key or value lies: quads of codes, `stride` bytes from one to the next, and
// its scale.
template <typename Byte>
struct Place {
  Byte* codes;
  int64_t stride;
  Byte* scale;
};

// Elements d..d+31 of a row of a tile.
template <typename Byte>
Place<Byte> place_in_tile(Byte* tile, int64_t head_dim, int64_t row, int64_t d) {
  const int64_t chunk = d / kChunkColumns * kChunkColumns;
  const int64_t block = (d - chunk) / kQ8Values;
  const ChunkLayout layout = chunk_layout(Format::q8_0, std::min(kChunkColumns, head_dim - chunk));
  Byte* at = tile + chunk / kChunkColumns * chunk_layout(Format::q8_0, kChunkColumns).bytes;
  return {at + layout.codes + block * kQ8Values * kPanelRows + kQuad * row, kQuad * kPanelRows,
          at + layout.scales + block * scale_bytes(Scales::f16) + 2 * row};
}

int64_t q8_value_bytes(int64_t head_dim) {
  return head_dim + head_dim / kQ8Values * 2;
}

Place<std::byte> place_in_cache(const StateView& cache, int32_t slot, int64_t element) {
  const int64_t head = element / cache.head_dim;
  const int64_t d = element % cache.head_dim;
  if (cache.by_element) {
    const int64_t tile = head * cache.n_tiles + slot / kKeyTile;
    return place_in_tile(cache.data + tile * key_tile_bytes(cache), cache.head_dim, slot % kKeyTile,
                         d);
  }
  std::byte* at = cache.data + slot * cache.entry_bytes + head * q8_value_bytes(cache.head_dim);
  return {at + d, kQuad, at + cache.head_dim + d / kQ8Values * 2};
}

void store(const Q8Block& block, const Place<std::byte>& to) {
  for (int64_t i = 0; i < kQ8Values / kQuad; ++i)
    std::memcpy(to.codes + i * to.stride, block.codes + i * kQuad, kQuad);
  std::memcpy(to.scale, &block.scale, sizeof block.scale);
}

template <typename From>
void copy_block(const Place<From>& from, const Place<std::byte>& to) {
  for (int64_t i = 0; i < kQ8Values / kQuad; ++i)
    std::memcpy(to.codes + i * to.stride, from.codes + i * from.stride, kQuad);
  std::memcpy(to.scale, from.scale, sizeof(uint16_t));
}

// ---- Plain types ----

int64_t element_bytes(const StateView& cache) {
  return dtype_info(cache.dtype).block_bytes;
}

// Number of element 0 of an entry, and from one element to the next.
int64_t first_of(const StateView& cache, int64_t slot) {
  return cache.by_element ? slot / kKeyTile * cache.width * kKeyTile + slot % kKeyTile
                          : slot * cache.width;
}
int64_t step_of(const StateView& cache) {
  return cache.by_element ? kKeyTile : 1;
}

}  // namespace

Values value_type(DType dtype) {
  if (dtype == DType::q8_0) return Values::q8;
  if (dtype == DType::f16) return Values::f16;
  if (dtype == DType::bf16) return Values::bf16;
  return Values::f32;
}

int64_t cache_entry_bytes(DType dtype, bool by_element, int64_t width, int64_t head_dim) {
  if (dtype != DType::q8_0) return width * dtype_info(dtype).block_bytes;
  const int64_t head =
      by_element ? panel_bytes(Format::q8_0, head_dim) / kKeyTile : q8_value_bytes(head_dim);
  return width / head_dim * head;
}

void append_head(const StateView& cache, int32_t slot, int64_t first_element, const float* x,
                 int64_t n) {
  if (cache.dtype == DType::q8_0) {
    for (int64_t i = 0; i < n; i += kQ8Values)
      store(q8_block(x + i), place_in_cache(cache, slot, first_element + i));
    return;
  }
  const int64_t step = step_of(cache);
  const int64_t first = first_of(cache, slot) + first_element * step;
  if (cache.dtype == DType::f32) {
    float* to = reinterpret_cast<float*>(cache.data) + first;
    for (int64_t i = 0; i < n; ++i)
      to[i * step] = x[i];
    return;
  }
  uint16_t* to = reinterpret_cast<uint16_t*>(cache.data) + first;
  if (cache.dtype == DType::f16) {
    for (int64_t i = 0; i < n; ++i)
      to[i * step] = f32_to_f16(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i)
      to[i * step] = f32_to_bf16(x[i]);
  }
}

void copy_entry(const StateView& cache, int32_t from, int32_t to) {
  if (!cache.by_element) {
    std::memcpy(cache.data + to * cache.entry_bytes, cache.data + from * cache.entry_bytes,
                static_cast<size_t>(cache.entry_bytes));
    return;
  }
  if (cache.dtype == DType::q8_0) {
    for (int64_t e = 0; e < cache.width; e += kQ8Values)
      copy_block(place_in_cache(cache, from, e), place_in_cache(cache, to, e));
    return;
  }
  const int64_t bytes = element_bytes(cache);
  const std::byte* source = cache.data + first_of(cache, from) * bytes;
  std::byte* target = cache.data + first_of(cache, to) * bytes;
  for (int64_t e = 0; e < cache.width; ++e)
    std::memcpy(target + e * kKeyTile * bytes, source + e * kKeyTile * bytes,
                static_cast<size_t>(bytes));
}

int64_t key_tile_bytes(const StateView& keys) {
  if (keys.dtype == DType::q8_0) return panel_bytes(Format::q8_0, keys.head_dim);
  return keys.head_dim * kKeyTile * element_bytes(keys);
}

const std::byte* key_tile(const StateView& keys, int64_t head, int32_t slot) {
  const int64_t tile = slot / kKeyTile;
  if (keys.dtype == DType::q8_0)
    return keys.data + (head * keys.n_tiles + tile) * key_tile_bytes(keys);
  return keys.data + tile * keys.width * kKeyTile * element_bytes(keys) +
         head * key_tile_bytes(keys);
}

void copy_key(const StateView& keys, int64_t head, int32_t slot, std::byte* tile, int32_t row) {
  const std::byte* from = key_tile(keys, head, slot);
  if (keys.dtype == DType::q8_0) {
    for (int64_t d = 0; d < keys.head_dim; d += kQ8Values)
      copy_block(place_in_tile(from, keys.head_dim, slot % kKeyTile, d),
                 place_in_tile(tile, keys.head_dim, row, d));
    return;
  }
  const int64_t bytes = element_bytes(keys);
  for (int64_t d = 0; d < keys.head_dim; ++d)
    std::memcpy(tile + (d * kKeyTile + row) * bytes,
                from + (d * kKeyTile + slot % kKeyTile) * bytes, static_cast<size_t>(bytes));
}

const std::byte* value_head(const StateView& values, int64_t head, int32_t slot) {
  const int64_t head_bytes = values.dtype == DType::q8_0 ? q8_value_bytes(values.head_dim)
                                                         : values.head_dim * element_bytes(values);
  return values.data + slot * values.entry_bytes + head * head_bytes;
}

}  // namespace kapitsa::backend::cpu
