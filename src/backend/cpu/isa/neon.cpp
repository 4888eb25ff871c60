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

#include "backend/cpu/isa/kernels_f32.inl"
#include "backend/cpu/isa/kernels_packed.inl"

constexpr Kernels kTable = {"neon",     linear,  packed_linear, quantise, dot,
                            add_scaled, exp_sum, activate,      softcap};

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
