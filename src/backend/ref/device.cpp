#include "backend/ref/device.h"

namespace kapitsa::backend::ref {

Result<std::unique_ptr<Device>> open(const DeviceOptions& /*options*/) {
  return Error{ErrorCode::unsupported, "ref: not built"};
}

}  // namespace kapitsa::backend::ref
