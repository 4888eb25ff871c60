// All kernels of an instruction set and their table, for the file that defines its Vec, Bytes and
// Ints and the sizes of its register blocks. Included inside an anonymous namespace.

// clang-format off: each builds on the ones before
#include "backend/cpu/isa/kernels_f32.inl"
#include "backend/cpu/isa/kernels_attention.inl"
#include "backend/cpu/isa/kernels_packed.inl"
#include "backend/cpu/isa/kernels_state.inl"
// clang-format on

constexpr Kernels table(const char* name) {
  return {.name = name,
          .linear = linear,
          .packed_linear = packed_linear,
          .quantise = quantise,
          .dot = dot,
          .score_tile = score_tile,
          .add_values = add_values,
          .step_state = step_state,
          .advance_state = advance_state,
          .chunk_state = chunk_state,
          .convolve = convolve,
          .largest = largest,
          .exp_sum = exp_sum,
          .activate = activate,
          .softcap = softcap};
}
