#include "backend/cpu/device.h"

namespace kapitsa::backend::cpu {

Result<std::unique_ptr<Device>> open(const DeviceOptions& /*options*/) {
  return Error{ErrorCode::unsupported, "cpu: not built"};
}

}  // namespace kapitsa::backend::cpu
