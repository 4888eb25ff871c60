// The shapes of the models that can be made with random weights: the metadata that their GGUF files
// have. Data only; synthetic.h makes checkpoints of it.
#pragma once

#include "weights/checkpoint.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::engine {

struct SyntheticShape {
  std::string architecture;  // general.architecture
  int32_t n_layers = 0;
  int32_t min_layers = 1;  // that hold one of each part
  int32_t hidden = 0;
  int32_t n_vocab = 0;
  // Without the architecture's prefix. An array of n_layers integers has one for each layer.
  std::map<std::string, weights::Value, std::less<>> metadata;
  // Of matrices whose rows are a multiple of the type's block; others become q4_0.
  DType matrix = DType::q4_k;
  DType output = DType::q6_k;
  bool tied = false;  // no output.weight
  int32_t block = 0;  // > 0: block diffusion, with this mask token
  int32_t mask_token = 0;
};

// nullptr-like: an empty architecture means that the name is unknown.
SyntheticShape synthetic_shape(std::string_view name);
std::vector<std::string_view> synthetic_names();

}  // namespace kapitsa::engine
