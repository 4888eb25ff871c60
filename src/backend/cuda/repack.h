// Re-encodes a weight into tiles for tensor cores, exactly.
#pragma once

#include "backend/cuda/tiles.h"
#include "backend/cuda/views.h"

#include <cuda_runtime_api.h>

namespace kapitsa::backend::cuda {

// `raw` lies on the card as the file has it; `format` is not none and fits it.
void repack(const WeightView& raw, TileFormat format, uint8_t* out, cudaStream_t stream);

}  // namespace kapitsa::backend::cuda
