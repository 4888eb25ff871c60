// The kernels of any machine, compiled with the build's own flags.
#include "backend/cpu/isa/kernels.h"
#include "base/half.h"

#include <cstddef>

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_scalar.h"

constexpr int kRowBlock = 2;

#include "backend/cpu/isa/kernels_f32.inl"

constexpr Kernels kTable = {"scalar", linear, dot, add_scaled, exp_sum, activate, softcap};

}  // namespace

const Kernels* scalar_kernels() {
  return &kTable;
}

}  // namespace kapitsa::backend::cpu
