// Weight rows as doubles: the one place of the reference that knows element types.
#include "backend/ref/run.h"
#include "weights/codec.h"

namespace kapitsa::backend::ref {

bool can_read_weight(DType dtype) {
  return weights::can_dequantise(dtype);
}

std::vector<double> weight_row(const plan::Weight& weight, int64_t expert, int64_t out) {
  const auto row_bytes = static_cast<size_t>(*dtype_bytes(weight.dtype, weight.in));
  const auto row = static_cast<size_t>(expert * weight.out + out);
  std::vector<float> values(static_cast<size_t>(weight.in));
  const Status status =
      weights::dequantise(weight.dtype, weight.data.subspan(row * row_bytes, row_bytes), values);
  KAPITSA_CHECK(status.ok(), "load() checked that the weight can be decoded");
  return {values.begin(), values.end()};
}

std::vector<double> vector_or(const plan::Plan& plan, plan::WeightId id, int64_t n,
                              double otherwise) {
  if (id) return weight_row(plan.weight(id), 0, 0);
  return std::vector<double>(static_cast<size_t>(n), otherwise);
}

}  // namespace kapitsa::backend::ref
