// Checkpoints without a file: the real shape of a known model with random weights, for measuring
// speed without a download. The architecture's own loader asks for its tensors and each is made
// when it is asked for, so that shapes are written down once.
#pragma once

#include "weights/checkpoint.h"

#include <string>

namespace kapitsa::engine {

struct SyntheticOptions {
  std::string name;      // one of synthetic_names()
  int32_t n_layers = 0;  // the first n layers only; 0: all
  // Without: matrices are zero and take no memory until they are touched.
  bool with_data = true;
};

// A checkpoint of format GGUF that makes what is asked of it. A vocabulary is among its metadata.
Result<weights::Checkpoint> synthetic_checkpoint(const SyntheticOptions& options);

}  // namespace kapitsa::engine
