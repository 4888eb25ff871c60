// The list of backends of this build. Adding one is a row here and a folder beside this file.
#include "backend/backend.h"
#include "backend/cpu/device.h"
#if KAPITSA_CUDA
#include "backend/cuda/device.h"
#endif
#include "backend/ref/device.h"

#include <iterator>

namespace kapitsa::backend {
namespace {

constexpr BackendEntry kBackends[] = {
#if KAPITSA_CUDA
    {"cuda", cuda::open},
#endif
    {"cpu", cpu::open},
};

}  // namespace

Status Program::write(plan::BufferId /*buffer*/, int32_t /*first_row*/,
                      std::span<const float> /*values*/) {
  return Error{ErrorCode::unsupported, "this backend takes no input buffers"};
}

std::span<const BackendEntry> backends() {
  return kBackends;
}

Result<std::unique_ptr<Device>> open_device(const std::string& backend,
                                            const DeviceOptions& options) {
  if (backend == "ref") return ref::open(options);
  std::string known;
  std::string failures;
  for (const BackendEntry& entry : kBackends) {
    known += known.empty() ? entry.name : std::string(", ") + entry.name;
    if (!backend.empty() && backend != entry.name) continue;
    auto device = entry.open(options);
    if (device || !backend.empty()) return device;
    failures += std::string("; ") + entry.name + ": " + device.error().message;
  }
  if (!backend.empty()) {
    return Error{ErrorCode::invalid_argument,
                 "backend '" + backend + "' is not in this build; available: " + known};
  }
  return Error{ErrorCode::unsupported, "no backend could be opened" + failures};
}

}  // namespace kapitsa::backend
