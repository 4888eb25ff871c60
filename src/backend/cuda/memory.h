// Owners of device memory, page-locked host memory, streams and events, and the translation of CUDA
// errors into ours. Everything of one Device is used by one thread.
#pragma once

#include "base/result.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kapitsa::backend::cuda {

// "cuda: WHAT: the runtime's words"; out_of_memory, else device_failed.
Status check(cudaError_t code, const char* what);

struct FreeDevice {
  void operator()(std::byte* p) const { cudaFree(p); }
};
struct FreePinned {
  void operator()(std::byte* p) const { cudaFreeHost(p); }
};
using DeviceBlock = std::unique_ptr<std::byte, FreeDevice>;
using PinnedBlock = std::unique_ptr<std::byte, FreePinned>;

// Not initialised; nullptr for 0 bytes. `what` is for the error.
Result<DeviceBlock> allocate_device(int64_t bytes, const char* what);
Result<PinnedBlock> allocate_pinned(int64_t bytes, const char* what);

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;
using GraphExec = std::unique_ptr<CUgraphExec_st, DestroyGraph>;

Result<Stream> make_stream();
Result<Event> make_event();

}  // namespace kapitsa::backend::cuda
