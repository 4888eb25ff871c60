#include "backend/weight_row.h"

#include "weights/codec.h"
#include "weights/mlx_codec.h"

namespace kapitsa::backend {
namespace {

// Row `row` of `n_rows` with as many bytes each.
std::span<const std::byte> slice(std::span<const std::byte> all, int64_t n_rows, int64_t row) {
  const size_t bytes = all.size() / static_cast<size_t>(n_rows);
  return all.subspan(static_cast<size_t>(row) * bytes, bytes);
}

}  // namespace

bool can_decode(const plan::Weight& weight) {
  return weight.dtype == DType::grouped ? weights::is_valid(weight.group)
                                        : weights::can_dequantise(weight.dtype);
}

void decode_row(const plan::Weight& weight, int64_t expert, int64_t row, std::span<float> out) {
  const auto bytes = static_cast<size_t>(plan::row_bytes(weight));
  const auto codes =
      plan::matrix_bytes(weight, expert).subspan(static_cast<size_t>(row) * bytes, bytes);
  if (weight.dtype == DType::grouped) {
    weights::dequantise_mlx(
        weight.group, codes, slice(plan::matrix_scales(weight, expert), weight.out, row),
        slice(plan::matrix_biases(weight, expert), weight.out, row), weight.scale_dtype, out);
  } else {
    const Status decoded = weights::dequantise(weight.dtype, codes, out);
    KAPITSA_CHECK(decoded.ok(), "the caller checked can_decode");
  }
  if (weight.scale.empty()) return;
  const float scale = weight.scale[weight.scale.size() == 1 ? 0 : static_cast<size_t>(expert)];
  for (float& value : out)
    value *= scale;
}

}  // namespace kapitsa::backend
