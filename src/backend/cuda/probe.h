// Whether the kernels of this build run on the current card.
#pragma once

#include <cuda_runtime_api.h>

namespace kapitsa::backend::cuda {

// cudaSuccess, or cudaErrorNoKernelImageForDevice.
cudaError_t find_kernel_image();

}  // namespace kapitsa::backend::cuda
