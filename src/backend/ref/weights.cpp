// Weight rows as doubles.
#include "backend/ref/run.h"
#include "backend/weight_row.h"

namespace kapitsa::backend::ref {

std::vector<double> weight_row(const plan::Weight& weight, int64_t expert, int64_t out) {
  std::vector<float> values(static_cast<size_t>(weight.in));
  decode_row(weight, expert, out, values);
  return {values.begin(), values.end()};
}

std::vector<double> vector_or(const plan::Plan& plan, plan::WeightId id, int64_t n,
                              double otherwise) {
  if (id) return weight_row(plan.weight(id), 0, 0);
  return std::vector<double>(static_cast<size_t>(n), otherwise);
}

}  // namespace kapitsa::backend::ref
