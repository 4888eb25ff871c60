// The kernels for x86-64 with AVX2, FMA and F16C. Only this file is compiled with those flags, so
// it includes nothing with inline functions that the linker could choose for the rest of the
// program.
#include "backend/cpu/isa/kernels.h"

#ifdef __AVX2__
#include <immintrin.h>
#include <stddef.h>

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_avx2.h"

// Rows of one register block, of the f32 kernels and of the integer kernels.
constexpr int kRowBlock = 2;

constexpr int kPackedRows = 4;

#include "backend/cpu/isa/kernels_f32.inl"
#include "backend/cpu/isa/kernels_packed.inl"

constexpr Kernels kTable = {"avx2",     linear,  packed_linear, quantise, dot,
                            add_scaled, exp_sum, activate,      softcap};

}  // namespace

const Kernels* avx2_kernels() {
  const bool available = __builtin_cpu_supports("avx2") != 0 &&
                         __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("f16c") != 0;
  return available ? &kTable : nullptr;
}

}  // namespace kapitsa::backend::cpu

#else

namespace kapitsa::backend::cpu {

const Kernels* avx2_kernels() {
  return nullptr;
}

}  // namespace kapitsa::backend::cpu

#endif
