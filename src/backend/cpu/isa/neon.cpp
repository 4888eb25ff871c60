// The kernels for 64-bit Arm with the dot product instructions (Armv8.2 and later).
#include "backend/cpu/isa/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#include <stddef.h>

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_neon.h"

constexpr int kRowBlock = 4;

#include "backend/cpu/isa/kernels_f32.inl"

constexpr Kernels kTable = {"neon", linear, dot, add_scaled, exp_sum, activate, softcap};

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
