// From hidden rows to the few numbers that a sampler needs.
#include "backend/cpu/ops.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

constexpr int64_t kChunk = 1024;  // logits whose exponentials are summed together

float log_sum_exp(const Context& c, const float* logits, int64_t n) {
  const float highest = *std::max_element(logits, logits + n);
  double sum = 0.0;
  float chunk[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t size = std::min(kChunk, n - i);
    std::memcpy(chunk, logits + i, static_cast<size_t>(size) * sizeof(float));
    sum += static_cast<double>(c.kernels->exp_sum(chunk, size, highest));
  }
  return highest + static_cast<float>(std::log(sum));
}

// Insertion into a sorted list of k: most logits fail the first comparison.
void best_logits(const float* logits, int64_t n, int64_t k, int32_t* ids, float* values) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (found == k && !(logits[i] > values[k - 1])) continue;
    int64_t at = found < k ? found++ : k - 1;
    for (; at > 0 && logits[i] > values[at - 1]; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = logits[i];
    ids[at] = static_cast<int32_t>(i);
  }
}

}  // namespace

void run_op(const Context& c, const Worker& w, const plan::GatherOutputs& op) {
  const int64_t width = c.width(op.out);
  const Range rows = partition(c.n_rows(op.out), w.thread, w.n_threads);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    std::memcpy(c.f32(op.out) + i * width,
                c.f32(op.in) + c.pass->outputs[static_cast<size_t>(i)] * width,
                static_cast<size_t>(width) * sizeof(float));
  }
}

void run_op(const Context& c, const Worker& w, const plan::TopLogits& op) {
  const int64_t n = c.width(op.logits);
  const int64_t k = c.width(op.ids);
  const Range rows = partition(c.n_rows(op.logits), w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* logits = c.f32(op.logits) + row * n;
    best_logits(logits, n, k, c.i32(op.ids) + row * k, c.f32(op.values) + row * k);
    c.f32(op.log_sum_exp)[row] = log_sum_exp(c, logits, n);
  }
}

}  // namespace kapitsa::backend::cpu
