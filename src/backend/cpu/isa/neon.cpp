// The kernels for 64-bit Arm with the dot product instructions (Armv8.2 and later).
#include "backend/cpu/isa/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#include <stddef.h>

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_neon.h"

// Rows of one register block, of the f32 kernels and of the integer kernels.
constexpr int kRowBlock = 4;

constexpr int kPackedRows = 4;

// Queries of one register block: of scores, and of weighted sums of values.
constexpr int kScoreQueries = 4;
constexpr int kValueQueries = 4;

#include "backend/cpu/isa/kernels.inl"

constexpr Kernels kTable = table("neon");

}  // namespace

const Kernels* neon_kernels() {
  return &kTable;
}

}  // namespace kapitsa::backend::cpu

#else

namespace kapitsa::backend::cpu {

const Kernels* neon_kernels() {
  return nullptr;
}

}  // namespace kapitsa::backend::cpu

#endif
