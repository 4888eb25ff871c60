// Weight rows as doubles: the one place of the reference that knows element types.
#include "backend/ref/run.h"
#include "base/half.h"

#include <cstring>

namespace kapitsa::backend::ref {

bool can_read_weight(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

std::vector<double> weight_row(const plan::Weight& weight, int64_t expert, int64_t out) {
  const auto row_bytes = static_cast<size_t>(*dtype_bytes(weight.dtype, weight.in));
  const auto row = static_cast<size_t>(expert * weight.out + out);
  const std::byte* bytes = weight.data.data() + row * row_bytes;
  std::vector<double> values(static_cast<size_t>(weight.in));
  for (size_t i = 0; i < values.size(); ++i) {
    if (weight.dtype == DType::f32) {
      float value = 0.0F;
      std::memcpy(&value, bytes + i * sizeof(float), sizeof(float));
      values[i] = static_cast<double>(value);
    } else {
      uint16_t value = 0;
      std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
      values[i] =
          static_cast<double>(weight.dtype == DType::f16 ? f16_to_f32(value) : bf16_to_f32(value));
    }
  }
  return values;
}

std::vector<double> vector_or(const plan::Plan& plan, plan::WeightId id, int64_t n,
                              double otherwise) {
  if (id) return weight_row(plan.weight(id), 0, 0);
  return std::vector<double>(static_cast<size_t>(n), otherwise);
}

}  // namespace kapitsa::backend::ref
