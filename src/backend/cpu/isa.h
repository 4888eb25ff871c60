// Choosing the instruction set: once, when the Device is opened.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "base/result.h"

#include <string>

namespace kapitsa::backend::cpu {

// The best kernels that this machine runs, or those named by `force` (DeviceOptions::force_isa).
// The error lists what is available.
Result<const Kernels*> choose_kernels(const std::string& force);

}  // namespace kapitsa::backend::cpu
