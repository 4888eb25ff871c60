// N-gram tables, soft embedding, and the end of a pass: wanted rows and their best logits.
#include "backend/ref/run.h"

#include <algorithm>
#include <cmath>

namespace kapitsa::backend::ref {
namespace {

// The row's token and its predecessors, nearest first; everything before a segment end is eos.
std::vector<int64_t> ngram_context(const Run& run, const plan::NgramRows& op, int32_t row) {
  std::vector<int64_t> context = {run.pass.tokens[static_cast<size_t>(row)]};
  const auto n_history = static_cast<size_t>(run.plan.n_history);
  bool ended = false;
  for (size_t k = 0; k + 1 < op.multipliers.size(); ++k) {
    const int32_t token = run.pass.history[static_cast<size_t>(row) * n_history + k];
    ended = ended || token < 0 || token == op.eos_token;
    context.push_back(ended ? op.eos_token : token);
  }
  return context;
}

}  // namespace

void run_op(Run& run, const plan::NgramRows& op) {
  const plan::Weight& table = run.plan.weight(op.table);
  const auto n = static_cast<size_t>(table.in);
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const std::vector<int64_t> context = ngram_context(run, op, r);
    for (size_t head = 0; head < op.head_vocab.size(); ++head) {
      const size_t n_tokens = 2 + head / static_cast<size_t>(op.heads_per_ngram);
      uint64_t mixed = 0;
      for (size_t k = 0; k < n_tokens; ++k)
        mixed ^= static_cast<uint64_t>(context[k]) * static_cast<uint64_t>(op.multipliers[k]);
      const int64_t vocab = op.head_vocab[head];
      const int64_t remainder = static_cast<int64_t>(mixed) % vocab;
      const int64_t index = op.head_offsets[head] + (remainder + vocab) % vocab;
      std::ranges::copy(weight_row(table, index / table.out, index % table.out),
                        run.row(op.out, r).begin() + static_cast<std::ptrdiff_t>(head * n));
    }
  }
}

void run_op(Run& run, const plan::SoftEmbed& op) {
  const plan::Weight& table = run.plan.weight(op.table);
  for (int32_t r = 0; r < run.n_rows(op.out); ++r)
    std::ranges::fill(run.row(op.out, r), 0.0);
  for (int64_t v = 0; v < table.out; ++v) {
    const std::vector<double> embedding = weight_row(table, 0, v);
    for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
      const double p =
          static_cast<double>(op.scale) * run.row(op.probabilities, r)[static_cast<size_t>(v)];
      const auto out = run.row(op.out, r);
      for (size_t i = 0; i < out.size(); ++i)
        out[i] += p * embedding[i];
    }
  }
}

void run_op(Run& run, const plan::GatherOutputs& op) {
  for (size_t o = 0; o < run.pass.outputs.size(); ++o)
    std::ranges::copy(run.row(op.in, run.pass.outputs[o]),
                      run.row(op.out, static_cast<int32_t>(o)).begin());
}

void run_op(Run& run, const plan::TopLogits& op) {
  for (int32_t r = 0; r < run.n_rows(op.logits); ++r) {
    const auto logits = run.row(op.logits, r);
    const auto ids = run.ids(op.ids, r);
    const std::vector<int32_t> order = best_first(logits, std::ssize(ids));
    const double top = logits[static_cast<size_t>(order[0])];
    double sum = 0.0;
    for (const double logit : logits)
      sum += std::exp(logit - top);
    run.row(op.log_sum_exp, r)[0] = top + std::log(sum);
    for (size_t j = 0; j < ids.size(); ++j) {
      ids[j] = order[j];
      run.row(op.values, r)[j] = logits[static_cast<size_t>(order[j])];
    }
  }
}

}  // namespace kapitsa::backend::ref
