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

int64_t stored_bytes(const plan::Weight& weight) {
  size_t bytes = weight.data.size() + weight.scales.size() + weight.biases.size();
  for (const std::span<const std::byte> matrix : weight.expert_data)
    bytes += matrix.size();
  for (const std::span<const std::byte> scales : weight.expert_scales)
    bytes += scales.size();
  return static_cast<int64_t>(bytes);
}

int64_t mapped_bytes(const plan::Plan& plan, const std::vector<bool>& copied) {
  std::vector<bool> counts(copied.size());
  for (size_t i = 0; i < copied.size(); ++i)
    counts[i] = !copied[i];
  for (const plan::Routine& routine : plan.routines()) {
    for (const plan::Step& step : routine.steps) {
      if (const auto* embed = std::get_if<plan::EmbedRows>(&step.op))
        counts[static_cast<size_t>(embed->table.index)] = true;
      if (const auto* ngram = std::get_if<plan::NgramRows>(&step.op))
        counts[static_cast<size_t>(ngram->table.index)] = false;
    }
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    bytes += counts[i] ? stored_bytes(plan.weights()[i]) : 0;
  return bytes;
}

}  // namespace kapitsa::backend
