// From hidden rows to the few numbers that a sampler needs.
#include "backend/cpu/ops.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

// Logits whose best ones and exponentials are found together, by one thread: a fixed cut, so that
// the sums do not depend on the number of threads.
constexpr int64_t kChunk = 4096;

struct Partial {
  float highest;
  double sum;  // of exp(logit - highest)
};

int64_t n_chunks(int64_t n) {
  return (n + kChunk - 1) / kChunk;
}

// Insertion into a sorted list of k: most logits fail the first comparison. Returns how many are in
// the list, which held `found`.
int64_t best_logits(const float* logits, int64_t first, int64_t n, int64_t k, int64_t found,
                    int32_t* ids, float* values) {
  for (int64_t i = first; i < first + n; ++i) {
    if (found == k && !(logits[i] > values[k - 1])) continue;
    int64_t at = found < k ? found++ : k - 1;
    for (; at > 0 && logits[i] > values[at - 1]; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = logits[i];
    ids[at] = static_cast<int32_t>(i);
  }
  return found;
}

Partial sum_chunk(const Context& c, const float* logits, int64_t n) {
  constexpr int64_t kPart = 512;
  float part[kPart];
  Partial partial = {.highest = *std::max_element(logits, logits + n), .sum = 0.0};
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t size = std::min(kPart, n - i);
    std::memcpy(part, logits + i, static_cast<size_t>(size) * sizeof(float));
    partial.sum += static_cast<double>(c.kernels->exp_sum(part, size, partial.highest));
  }
  return partial;
}

float log_sum_exp(const Partial* partials, int64_t n) {
  float highest = partials[0].highest;
  for (int64_t i = 1; i < n; ++i)
    highest = std::max(highest, partials[i].highest);
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i)
    sum += partials[i].sum * std::exp(static_cast<double>(partials[i].highest - highest));
  return highest + static_cast<float>(std::log(sum));
}

}  // namespace

int64_t top_logits_bytes(int64_t n_rows, int64_t vocab) {
  return round_up(n_rows * n_chunks(vocab) * int64_t{sizeof(Partial)}, kLine);
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::TopLogits& op) {
  return top_logits_bytes(limits.max_outputs, plan.buffer(op.logits).width);
}

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
  const int64_t vocab = c.width(op.logits);
  const int64_t k = c.width(op.ids);
  const int64_t n_rows = c.n_rows(op.logits);
  const int64_t chunks = n_chunks(vocab);
  auto* partials = reinterpret_cast<Partial*>(w.shared);
  const Range items = partition(n_rows * chunks, w.thread, w.n_threads);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t first = item % chunks * kChunk;
    partials[item] = sum_chunk(c, c.f32(op.logits) + item / chunks * vocab + first,
                               std::min(kChunk, vocab - first));
  }
  c.pool->barrier();
  const Range rows = partition(n_rows, w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* logits = c.f32(op.logits) + row * vocab;
    const Partial* row_partials = partials + row * chunks;
    int32_t* ids = c.i32(op.ids) + row * k;
    float* values = c.f32(op.values) + row * k;
    int64_t found = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      // Most chunks hold none of the best.
      if (found == k && !(row_partials[chunk].highest > values[k - 1])) continue;
      const int64_t first = chunk * kChunk;
      found = best_logits(logits, first, std::min(kChunk, vocab - first), k, found, ids, values);
    }
    c.f32(op.log_sum_exp)[row] = log_sum_exp(row_partials, chunks);
  }
}

}  // namespace kapitsa::backend::cpu
