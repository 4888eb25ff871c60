#include "backend/cuda/memory.h"

#include <fmt/format.h>

namespace kapitsa::backend::cuda {

Status check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  return Error{code == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory
                                                 : ErrorCode::device_failed,
               fmt::format("cuda: {}: {}", what, cudaGetErrorString(code))};
}

Result<DeviceBlock> allocate_device(int64_t bytes, const char* what) {
  void* p = nullptr;
  if (bytes == 0) return DeviceBlock();
  const cudaError_t code = cudaMalloc(&p, static_cast<size_t>(bytes));
  if (code == cudaSuccess) return DeviceBlock(static_cast<std::byte*>(p));
  cudaGetLastError();  // a refused allocation is not a broken device
  return Error{ErrorCode::out_of_memory,
               fmt::format("cuda: the card has no {} MiB free for {}", (bytes >> 20) + 1, what)};
}

Result<PinnedBlock> allocate_pinned(int64_t bytes, const char* what) {
  void* p = nullptr;
  if (bytes == 0) return PinnedBlock();
  const cudaError_t code =
      cudaHostAlloc(&p, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
  if (code == cudaSuccess) return PinnedBlock(static_cast<std::byte*>(p));
  cudaGetLastError();
  return Error{ErrorCode::out_of_memory, fmt::format("cuda: no {} MiB of page-locked memory for {}",
                                                     (bytes >> 20) + 1, what)};
}

Result<Stream> make_stream() {
  cudaStream_t stream = nullptr;
  KAPITSA_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"));
  return Stream(stream);
}

Result<Event> make_event() {
  cudaEvent_t event = nullptr;
  KAPITSA_TRY(check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"));
  return Event(event);
}

}  // namespace kapitsa::backend::cuda
