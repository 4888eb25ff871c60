// Embeddings that only some families have: rows of n-gram tables, and a weighted sum of all rows of
// a table.
#include "backend/cpu/ops.h"
#include "backend/weight_row.h"
#include "base/huge_block.h"

#include <algorithm>

namespace kapitsa::backend::cpu {
namespace {

// Table rows that the threads decode together before each adds them to its own outputs.
constexpr int64_t kTableRows = 64;

// The row of the table for the n tokens that end at a row of the pass.
int64_t ngram_index(const Context& c, const plan::NgramRows& op, int64_t row, size_t head) {
  const size_t n = 2 + head / static_cast<size_t>(op.heads_per_ngram);
  const int32_t* history = c.pass->history.data() + row * c.plan->n_history;
  int64_t token = c.pass->tokens[static_cast<size_t>(row)];
  bool ended = false;  // before the segment every token counts as its end
  uint64_t mixed = 0;  // wraps, as signed products of the published hash do
  for (size_t k = 0; k < n; ++k) {
    if (k > 0) {
      token = history[k - 1];
      ended = ended || token < 0 || token == op.eos_token;
      if (ended) token = op.eos_token;
    }
    mixed ^= static_cast<uint64_t>(token) * static_cast<uint64_t>(op.multipliers[k]);
  }
  const int64_t vocab = op.head_vocab[head];
  const int64_t remainder = static_cast<int64_t>(mixed) % vocab;
  return op.head_offsets[head] + (remainder + vocab) % vocab;
}

int64_t table_bytes(const plan::Weight& table) {
  return round_up(kTableRows * table.in * 4, kLine);
}

}  // namespace

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& /*limits*/,
                      const plan::SoftEmbed& /*op*/) {
  return kTableRows * int64_t{sizeof(void*)};
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& /*limits*/,
                     const plan::SoftEmbed& op) {
  return table_bytes(plan.weight(op.table));
}

void run_op(const Context& c, const Worker& w, const plan::NgramRows& op) {
  const plan::Weight& table = *c.weight(op.table).source;
  const auto n = static_cast<size_t>(table.in);
  const Range rows = partition(c.n_rows(op.out), w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (size_t head = 0; head < op.head_vocab.size(); ++head)
      decode_row(table, 0, ngram_index(c, op, row, head),
                 {c.f32(op.out) + row * c.width(op.out) + head * n, n});
  }
}

void run_op(const Context& c, const Worker& w, const plan::SoftEmbed& op) {
  const plan::Weight& table = *c.weight(op.table).source;
  const int64_t width = table.in;
  auto* decoded = reinterpret_cast<float*>(w.shared);
  auto* values = reinterpret_cast<const void**>(w.scratch);
  const Range rows = partition(c.n_rows(op.out), w.thread, w.n_threads);
  float* out = c.f32(op.out) + rows.begin * width;
  const int64_t n_out = (rows.end - rows.begin) * width;
  std::fill_n(out, n_out, 0.0F);
  for (int64_t first = 0; first < table.out; first += kTableRows) {
    const int64_t n = std::min(kTableRows, table.out - first);
    const Range own = partition(n, w.thread, w.n_threads);
    for (int64_t i = own.begin; i < own.end; ++i)
      decode_row(table, 0, first + i, {decoded + i * width, static_cast<size_t>(width)});
    for (int64_t i = 0; i < n; ++i)
      values[i] = decoded + i * width;
    c.pool->barrier();
    if (n_out > 0) {
      c.kernels->add_values({.weights = c.f32(op.probabilities) + rows.begin * table.out + first,
                             .weight_stride = table.out,
                             .n_queries = rows.end - rows.begin,
                             .values = values,
                             .n = n,
                             .dim = width,
                             .out = out,
                             .out_stride = width});
    }
    c.pool->barrier();
  }
  for (int64_t i = 0; i < n_out; ++i)
    out[i] *= op.scale;
}

}  // namespace kapitsa::backend::cpu
