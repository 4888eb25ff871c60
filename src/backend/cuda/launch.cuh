// Kernels whose start overlaps the end of the one before (programmatic dependent launch): what they
// do before wait_for_inputs() must not touch anything that a kernel writes.
#pragma once

#include "backend/cuda/device_math.cuh"

namespace kapitsa::backend::cuda {

// Kernels that follow may start when all blocks of this one have; what they read of ours they wait
// for. Both do nothing in a launch without that attribute.
__device__ inline void start_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline float4 scaled(const float4& v, float s) {
  return make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
}
__device__ inline float4 times(const float4& a, const float4& b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
// Launches a kernel that calls wait_for_inputs() in every thread that reads or writes activations.
template <typename Kernel, typename... Args>
void launch_early(Kernel* kernel, dim3 grid, int threads, int shared, cudaStream_t stream,
                  const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, args...);
}

// Multiprocessors of the current card.
inline int multiprocessors() {
  static const int count = [] {
    int device = 0;
    int n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
  }();
  return count;
}

}  // namespace kapitsa::backend::cuda
