// The reference backend: every primitive in double precision, one thread, written to be read. The
// oracle of every other backend; linked into tests and doctor only.
#pragma once

#include "backend/backend.h"

namespace kapitsa::backend::ref {

Result<std::unique_ptr<Device>> open(const DeviceOptions& options);

}  // namespace kapitsa::backend::ref
