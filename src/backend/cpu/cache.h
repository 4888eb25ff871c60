// Entries of the KV cache: where the elements of a key or a value lie, written and copied one entry
// at a time. What attention reads at once, tiles of keys and heads of values, is found here too.
//
// Layouts (StateView): values by position; keys 16 positions to a tile, by element. In q8_0 a head
// of a value is its codes and then its scales; the tiles of a head of keys are panels
// (isa/panel.h) whose rows are positions, so that the kernels of the weights multiply with them.
#pragma once

#include "backend/cpu/context.h"

namespace kapitsa::backend::cpu {

// Bytes of an entry of `width` elements, read as heads of head_dim.
int64_t cache_entry_bytes(DType dtype, bool by_element, int64_t width, int64_t head_dim);

// One row's head into the cache slot of the row: n elements from first_element on, in q8_0 whole
// blocks.
void append_head(const StateView& cache, int32_t slot, int64_t first_element, const float* x,
                 int64_t n);
void copy_entry(const StateView& cache, int32_t from, int32_t to);

// The tile of a head of keys that holds a slot.
const std::byte* key_tile(const StateView& keys, int64_t head, int32_t slot);
// Copies the key of a slot into row `row` of a tile of one head; the other rows are left alone.
void copy_key(const StateView& keys, int64_t head, int32_t slot, std::byte* tile, int32_t row);
int64_t key_tile_bytes(const StateView& keys);

// A head of a value, and how the kernels name its type.
const std::byte* value_head(const StateView& values, int64_t head, int32_t slot);
Values value_type(DType dtype);

}  // namespace kapitsa::backend::cpu
