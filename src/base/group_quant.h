// How a group-quantised weight is encoded whose codes, scales and biases lie in separate arrays, as
// MLX stores them (DType::grouped). The layouts and their decoder are in weights/mlx_codec.h.
#pragma once

#include <cstdint>

namespace kapitsa {

enum class GroupMode : uint8_t { affine, mxfp4, mxfp8, nvfp4 };

struct GroupQuant {
  int bits = 4;
  int group = 64;  // values that share a scale
  GroupMode mode = GroupMode::affine;
  friend bool operator==(const GroupQuant&, const GroupQuant&) = default;
};

}  // namespace kapitsa
