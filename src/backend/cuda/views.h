// What kernels see: plain structures of device pointers and sizes, passed to kernels by value. The
// pointers stay the same for the life of a Program, so that a captured graph may hold them; what
// changes from pass to pass lies behind them.
#pragma once

#include "base/dtype.h"
#include "base/group_quant.h"

#include <cstdint>

namespace kapitsa::backend::cuda {

// The pass, as the host wrote it. Arrays by row have max_rows entries, by view max_views.
struct PassView {
  // At `counts`: rows, outputs, views, 1 in prefill, 1 where every row's parent is the row before.
  enum Count : int32_t { kRows, kOutputs, kViews, kPrefill, kChain, kCounts };
  const int32_t* counts;
  const int32_t* tokens;
  const int32_t* positions;
  const int32_t* sequences;
  const int32_t* slots;
  const int32_t* parents;
  const int32_t* depth;    // ancestors of the row in the pass
  const int32_t* history;  // (rows, n_history)
  const int32_t* outputs;  // (outputs)
  // By view.
  const int32_t* first_row;
  const int32_t* end_row;
  const int32_t* committed;
  const int32_t* state_slot;
  const int32_t* first_page;    // in `pages`
  const int32_t* first_replay;  // in `replay`
  const int32_t* n_replay;
  const int32_t* replay;  // tape rows
  const int32_t* pages;
  int32_t page_tokens;
  int32_t n_history;
};

// A weight as the file has it. Only vectors are changed: they are f32.
struct WeightView {
  const uint8_t* data;
  const uint8_t* scales;  // DType::grouped
  const uint8_t* biases;
  const float* factor;  // nullptr is 1; one for all or one for each expert
  int64_t row_bytes, matrix_bytes;
  int64_t scale_row_bytes;
  int64_t experts, out, in;
  DType dtype;
  DType scale_dtype;
  GroupQuant group;
  int32_t n_factors;
};

struct HeadsView {
  float* base;
  int64_t row_stride;
  int32_t count, dim, stride;
};

struct StateView {
  uint8_t* data;
  DType dtype;
  int64_t width;  // elements of an entry
};

struct RopeView {
  const float* inv_freq;  // nullptr: no rope
  int32_t n_pairs;
  float magnitude;
  bool adjacent;
};

struct NormView {
  bool present;
  const float* weight;    // nullptr: weightless
  int32_t weight_stride;  // from head to head; 0: shared
  float eps;
};

}  // namespace kapitsa::backend::cuda
