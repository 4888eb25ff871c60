// The CPU backend: threads, vector kernels chosen at run time, weights used where they are mapped.
// Row-independent by construction: every output row is computed by the same instruction order.
#pragma once

#include "backend/backend.h"

namespace kapitsa::backend::cpu {

Result<std::unique_ptr<Device>> open(const DeviceOptions& options);

}  // namespace kapitsa::backend::cpu
