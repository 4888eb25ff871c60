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

// Queries of one register block: of scores, and of weighted sums of values.
constexpr int kScoreQueries = 4;
constexpr int kValueQueries = 2;

#include "backend/cpu/isa/kernels.inl"

constexpr Kernels kTable = table("avx2");

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
