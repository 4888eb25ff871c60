// Asks the runtime whether this build has machine code for the current card.
#include "backend/cuda/probe.h"

namespace kapitsa::backend::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

cudaError_t find_kernel_image() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, nothing);
}

}  // namespace kapitsa::backend::cuda
