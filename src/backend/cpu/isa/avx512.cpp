// The kernels for x86-64 with AVX-512 (F, BW, DQ, VL) and VNNI: Ice Lake, Zen 4 and later. Only
// this file is compiled with those flags, so it includes nothing with inline functions that the
// linker could choose for the rest of the program.
#include "backend/cpu/isa/kernels.h"

#ifdef __AVX512VNNI__
#include <immintrin.h>
#include <stddef.h>

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_avx512.h"

// Rows of one register block, of the f32 kernels and of the integer kernels.
constexpr int kRowBlock = 4;

constexpr int kPackedRows = 8;

// Queries of one register block: of scores, and of weighted sums of values.
constexpr int kScoreQueries = 8;
constexpr int kValueQueries = 6;

#include "backend/cpu/isa/kernels.inl"

constexpr Kernels kTable = table("avx512");

}  // namespace

const Kernels* avx512_kernels() {
  const bool available =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512vnni") != 0;
  return available ? &kTable : nullptr;
}

}  // namespace kapitsa::backend::cpu

#else

namespace kapitsa::backend::cpu {

const Kernels* avx512_kernels() {
  return nullptr;
}

}  // namespace kapitsa::backend::cpu

#endif
