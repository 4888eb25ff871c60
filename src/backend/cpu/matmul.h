// Products of activations with weights, for every step that projects something: which kernel a
// weight takes, how its input is prepared, how threads share the outputs. Plain weights multiply in
// f32 where they are mapped. Block types multiply in whole numbers (isa/panel.h), or, in
// ComputeMode::f32 and where a type has no panels, decoded to f32.
//
// A row's outputs have the same bits whatever rows are beside it and whichever thread computes
// them.
#pragma once

#include "backend/cpu/context.h"
#include "base/huge_block.h"

#include <cstdint>
#include <span>

namespace kapitsa::backend::cpu {

// Rows of activations as the kernels take them; either form is nullptr where no weight needs it.
struct Input {
  int64_t k = 0;
  int64_t n_rows = 0;
  const float* plain = nullptr;  // (n_rows, k), row r at r * stride
  int64_t stride = 0;
  const uint8_t* records = nullptr;  // (n_rows), of activation_layout(k).bytes each
  int planes = 1;                    // of the records
};

// Where rows come from.
struct Source {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t n_rows = 0;
  int64_t k = 0;
  std::span<const int32_t> rows;  // row r is data + rows[r] * stride; empty: r * stride
  plan::Norm norm;                // RMS norm over the row, where present
  bool exact = false;             // nearly so in whole numbers, for a prompt too
};

// Bytes of shared scratch for the input of max_rows rows, and of each thread's.
int64_t input_bytes(int64_t max_rows, int64_t k);
inline constexpr int64_t kThreadInputBytes = int64_t{256} << 10;
// Bytes of each thread's scratch for project() with this weight, after its input.
int64_t project_bytes(const ProgramLimits& limits, const plan::Weight& weight);

// Prepares an input. Small ones are made by every thread for itself; for larger ones the threads
// share the rows and meet before this returns. `weights` decide which forms are made.
Input prepare_input(const Context& c, const Worker& w, const Source& source,
                    std::span<const plan::WeightId> weights, std::byte* shared);

// One product: out[r][o] (+)= (W in[r])[o] + bias[o].
struct Product {
  plan::WeightId weight;
  int64_t expert = 0;
  const float* bias = nullptr;
  float* out = nullptr;  // row r at r * out_stride
  int64_t out_stride = 0;
  bool accumulate = false;
};

// Rows of a product: input row in[i] gives output row out[i]. Empty: all, in order.
struct Pick {
  std::span<const int32_t> in, out;
};

// Outputs begin..end-1 (begin a multiple of kPanelRows), by this thread alone.
void project(const Context& c, const Worker& w, const Input& input, const Product& product,
             Range outs, const Pick& pick = {});

// This thread's share of all outputs of several products of one input.
void project_share(const Context& c, const Worker& w, const Input& input,
                   std::span<const Product> products);

// Whether this weight multiplies in whole numbers.
inline bool uses_panels(const Context& c, plan::WeightId id) {
  return c.weight(id).format.has_value();
}

}  // namespace kapitsa::backend::cpu
