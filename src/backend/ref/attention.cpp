// Rope, the paged cache, softmax attention and block selection. A key is found by its position:
// below the committed end through the page table, above it on the row's path through the pass.
#include "backend/ref/run.h"
#include "base/half.h"
#include "base/q8_block.h"

#include <algorithm>
#include <cmath>

namespace kapitsa::backend::ref {
namespace {

struct Key {
  int32_t position;
  int32_t slot;
};

int32_t committed_slot(const Run& run, const plan::SequenceView& view, int32_t position) {
  return view.pages[static_cast<size_t>(position / run.page_tokens)] * run.page_tokens +
         position % run.page_tokens;
}

// The row's own path in rising position: committed positions, then its ancestors, then itself.
std::vector<Key> path_keys(const Run& run, int32_t row) {
  const plan::SequenceView& view = run.view(row);
  std::vector<Key> keys;
  for (int32_t a = row; a >= 0; a = run.pass.parent(a)) {
    const auto i = static_cast<size_t>(a);
    keys.push_back({run.pass.positions[i], run.pass.slots[i]});
  }
  for (int32_t position = view.committed - 1; position >= 0; --position)
    keys.push_back({position, committed_slot(run, view, position)});
  std::reverse(keys.begin(), keys.end());
  return keys;
}

// Rows of the row's sequence that are neither itself nor an ancestor and that the mask shows.
void append_later_keys(const Run& run, const plan::Attend& op, int32_t row,
                       std::vector<Key>& keys) {
  if (op.mask == plan::Mask::causal) return;
  const int32_t position = run.pass.positions[static_cast<size_t>(row)];
  for (int32_t other = row + 1; other < run.pass.n_rows(); ++other) {
    const auto o = static_cast<size_t>(other);
    if (run.pass.sequences[o] != run.pass.sequences[static_cast<size_t>(row)]) break;
    const int32_t key = run.pass.positions[o];
    const bool same_block = op.block > 0 && key / op.block == position / op.block;
    if (op.mask == plan::Mask::bidirectional || same_block)
      keys.push_back({key, run.pass.slots[o]});
  }
}

// First position inside the window; see Mask::bidirectional for the canvas.
int32_t window_start(const Run& run, const plan::Attend& op, int32_t row) {
  if (op.window <= 0) return 0;
  const int32_t last = op.mask == plan::Mask::bidirectional
                           ? run.view(row).committed
                           : run.pass.positions[static_cast<size_t>(row)];
  return last - op.window + 1;
}

std::vector<Key> visible_keys(const Run& run, const plan::Attend& op, int32_t row) {
  std::vector<Key> keys = path_keys(run, row);
  append_later_keys(run, op, row, keys);
  const int32_t start = window_start(run, op, row);
  std::erase_if(keys, [&](const Key& key) {
    if (key.position < start) return true;
    if (!op.selection) return false;
    const auto blocks = run.ids(op.selection, row);
    return std::ranges::find(blocks, key.position / op.selection_block) == blocks.end();
  });
  return keys;
}

double rounded(DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::f16) return static_cast<double>(f16_to_f32(f32_to_f16(narrow)));
  if (dtype == DType::bf16) return static_cast<double>(bf16_to_f32(f32_to_bf16(narrow)));
  return value;
}

// entry = what a cache of this type keeps of the head.
void store(DType dtype, std::span<const double> head, std::span<double> entry) {
  if (dtype != DType::q8_0) {
    for (size_t i = 0; i < head.size(); ++i)
      entry[i] = rounded(dtype, head[i]);
    return;
  }
  for (size_t first = 0; first < head.size(); first += size_t{kQ8Values}) {
    float values[kQ8Values];
    for (size_t i = 0; i < kQ8Values; ++i)
      values[i] = static_cast<float>(head[first + i]);
    const Q8Block block = q8_block(values);
    for (size_t i = 0; i < kQ8Values; ++i)
      entry[first + i] = static_cast<double>(f16_to_f32(block.scale)) * block.codes[i];
  }
}

}  // namespace

void run_op(Run& run, const plan::ApplyRope& op) {
  for (int32_t r = 0; r < run.pass.n_rows(); ++r) {
    for (int32_t h = 0; h < op.x.count; ++h)
      rotate(run.head(op.x, r, h), op.rope, run.pass.positions[static_cast<size_t>(r)]);
  }
}

void run_op(Run& run, const plan::CacheAppend& op) {
  StateData& cache = run.state(op.cache);
  for (int32_t r = 0; r < run.pass.n_rows(); ++r) {
    const auto entry = cache.entry(run.pass.slots[static_cast<size_t>(r)]);
    for (int32_t h = 0; h < op.in.count; ++h) {
      const auto head = run.head(op.in, r, h);
      store(cache.dtype, head, entry.subspan(static_cast<size_t>(h) * head.size(), head.size()));
    }
  }
}

void run_op(Run& run, const plan::Attend& op) {
  StateData& k_cache = run.state(op.k_cache);
  StateData& v_cache = run.state(op.v_cache);
  const auto dim = static_cast<size_t>(op.q.dim);
  const auto v_dim = static_cast<size_t>(op.out.dim);
  const std::vector<double> sinks = vector_or(run.plan, op.sinks, op.q.count, 0.0);
  const auto softcap = static_cast<double>(op.softcap);
  for (int32_t r = 0; r < run.pass.n_rows(); ++r) {
    const std::vector<Key> keys = visible_keys(run, op, r);
    for (int32_t h = 0; h < op.q.count; ++h) {
      const auto kv_head = static_cast<size_t>(h / (op.q.count / op.n_kv_heads));
      const auto q = run.head(op.q, r, h);
      std::vector<double> scores;  // (keys)
      double top = op.sinks ? sinks[static_cast<size_t>(h)] : -HUGE_VAL;
      for (const Key& key : keys) {
        double score = static_cast<double>(op.scale) *
                       dot(q, k_cache.entry(key.slot).subspan(kv_head * dim, dim));
        if (softcap > 0) score = softcap * std::tanh(score / softcap);
        scores.push_back(score);
        top = std::max(top, score);
      }
      double sum = op.sinks ? std::exp(sinks[static_cast<size_t>(h)] - top) : 0.0;
      std::vector<double> out(v_dim, 0.0);
      for (size_t j = 0; j < keys.size(); ++j) {
        const double p = std::exp(scores[j] - top);
        const auto v = v_cache.entry(keys[j].slot).subspan(kv_head * v_dim, v_dim);
        sum += p;
        for (size_t i = 0; i < v_dim; ++i)
          out[i] += p * v[i];
      }
      const auto target = run.head(op.out, r, h);
      for (size_t i = 0; i < v_dim; ++i)
        target[i] = sum > 0 ? out[i] / sum : 0.0;
    }
  }
}

void run_op(Run& run, const plan::SelectBlocks& op) {
  StateData& cache = run.state(op.key_cache);
  const auto dim = static_cast<size_t>(op.q.dim);
  const std::vector<double> weight = norm_weight(run.plan, op.key_norm, op.q.dim, 0);
  for (int32_t r = 0; r < run.pass.n_rows(); ++r) {
    const std::vector<Key> keys = path_keys(run, r);
    const auto n_tokens = static_cast<int32_t>(keys.size());
    const int32_t n_blocks = n_tokens / op.ratio;
    std::vector<double> scores;  // (complete blocks)
    for (int32_t block = 0; block < n_blocks; ++block) {
      std::vector<double> key(dim, 0.0);
      for (int32_t t = block * op.ratio; t < (block + 1) * op.ratio; ++t) {
        const auto raw = cache.entry(keys[static_cast<size_t>(t)].slot);
        for (size_t i = 0; i < dim; ++i)
          key[i] += raw[i] / op.ratio;
      }
      if (op.key_norm.present) normalise(key, weight, static_cast<double>(op.key_norm.eps));
      rotate(key, op.rope, keys[static_cast<size_t>(block * op.ratio)].position);
      double score = 0.0;
      for (int32_t h = 0; h < op.q.count; ++h)
        score += std::max(dot(run.head(op.q, r, h), key), 0.0);
      scores.push_back(score / std::sqrt(static_cast<double>(op.q.dim)));
    }
    std::vector<int32_t> order = best_first(scores, std::min(n_blocks, op.budget));
    std::ranges::sort(order);
    if (n_tokens % op.ratio != 0) order.push_back(n_blocks);
    const auto out = run.ids(op.out, r);
    std::ranges::fill(out, -1);
    std::ranges::copy(order, out.begin());
  }
}

}  // namespace kapitsa::backend::ref
