// The kernels for 64-bit Arm with the dot product instructions (Armv8.2 and later).
#include "backend/cpu/isa/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#include <stddef.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_neon.h"

constexpr int kRowBlock = 4;

#include "backend/cpu/isa/kernels_f32.inl"

constexpr Kernels kTable = {"neon", linear, dot, add_scaled, exp_sum, activate, softcap};

bool available() {
#ifdef __linux__
  constexpr unsigned long kAsimdDotProduct = 1UL << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kAsimdDotProduct) != 0;
#else
  return true;  // every Apple chip that runs a supported system has them
#endif
}

}  // namespace

const Kernels* neon_kernels() {
  return available() ? &kTable : nullptr;
}

}  // namespace kapitsa::backend::cpu

#else

namespace kapitsa::backend::cpu {

const Kernels* neon_kernels() {
  return nullptr;
}

}  // namespace kapitsa::backend::cpu

#endif
