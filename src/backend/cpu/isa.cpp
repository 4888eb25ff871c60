#include "backend/cpu/isa.h"

#include "base/env.h"
#include "base/system.h"

namespace kapitsa::backend::cpu {

Result<const Kernels*> choose_kernels(const std::string& asked) {
  const std::string force = asked.empty() ? environment("KAPITSA_ISA").value_or("") : asked;
  const Kernels* const best_first[] = {avx512_kernels(), avx2_kernels(),
                                       has_arm_dot_product() ? neon_kernels() : nullptr,
                                       scalar_kernels()};
  std::string available;
  for (const Kernels* kernels : best_first) {
    if (kernels == nullptr) continue;
    if (force.empty() || force == kernels->name) return kernels;
    available += available.empty() ? kernels->name : std::string(", ") + kernels->name;
  }
  return Error{ErrorCode::invalid_argument,
               "instruction set '" + force +
                   "' is not available on this machine and build; available: " + available};
}

}  // namespace kapitsa::backend::cpu
