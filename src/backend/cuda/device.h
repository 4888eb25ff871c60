// The CUDA backend: the best NVIDIA card of this machine, compute capability 8.0 or newer.
#pragma once

#include "backend/backend.h"

namespace kapitsa::backend::cuda {

// `unsupported`, in one line, where there is no driver, no card, or only older ones.
Result<std::unique_ptr<Device>> open(const DeviceOptions& options);

}  // namespace kapitsa::backend::cuda
