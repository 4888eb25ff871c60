// The choice of blocks for sparse attention. The rows of a work item follow one another in a
// sequence and share the keys of complete blocks that all of them see alike; a row's score of a
// block is computed in the same order whatever rows are beside it (invariant 1).
#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "base/half.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>

namespace kapitsa::backend::cpu {
namespace {

constexpr int64_t kRows = 16;    // of one work item
constexpr int64_t kBlocks = 64;  // whose keys are made at a time
constexpr int64_t kCoarse = 64;  // blocks between the coarse angles of a BlockRope

struct Scratch {
  float* scores;         // (kRows, max blocks)
  int32_t* order;        // (max blocks)
  float* keys;           // (kBlocks, dim)
  float* dots;           // (kRows, kBlocks)
  float* angles;         // (pairs, 2)
  float* raw;            // (ratio, dim): keys that lie by element
  const void** entries;  // (ratio)
  float* weights;        // (ratio)
  int32_t* path;         // (max rows) slots
};

int64_t max_blocks(const plan::SelectBlocks& op, const ProgramLimits& limits) {
  return int64_t{limits.n_pages} * limits.page_tokens / op.ratio + 1;
}

int64_t scratch_size(const plan::SelectBlocks& op, const ProgramLimits& limits, std::byte* base,
                     Scratch* scratch) {
  int64_t size = 0;
  const auto take = [&](int64_t bytes) {
    std::byte* from = base == nullptr ? nullptr : base + size;
    size += round_up(bytes, kLine);
    return from;
  };
  const int64_t n = max_blocks(op, limits);
  Scratch s = {};
  s.scores = reinterpret_cast<float*>(take(kRows * n * 4));
  s.order = reinterpret_cast<int32_t*>(take(n * 4));
  s.keys = reinterpret_cast<float*>(take(kBlocks * op.q.dim * 4));
  s.dots = reinterpret_cast<float*>(take(kRows * kBlocks * 4));
  s.angles = reinterpret_cast<float*>(take(std::ssize(op.rope.inv_freq) * 8));
  s.raw = reinterpret_cast<float*>(take(int64_t{op.ratio} * op.q.dim * 4));
  s.entries = reinterpret_cast<const void**>(take(op.ratio * int64_t{sizeof(void*)}));
  s.weights = reinterpret_cast<float*>(take(op.ratio * 4));
  s.path = reinterpret_cast<int32_t*>(take(limits.max_rows * 4));
  if (scratch != nullptr) *scratch = s;
  return size;
}

float element(const StateView& cache, int32_t slot, int64_t e) {
  const int64_t at = slot / kKeyTile * cache.width * kKeyTile + e * kKeyTile + slot % kKeyTile;
  if (cache.dtype == DType::f32) return reinterpret_cast<const float*>(cache.data)[at];
  const uint16_t half = reinterpret_cast<const uint16_t*>(cache.data)[at];
  return cache.dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

class Selecting {
public:
  Selecting(const Context& c, const Worker& w, const plan::SelectBlocks& op)
      : c_(c), op_(op), cache_(c.state(op.key_cache)), max_blocks_(max_blocks(op, c.limits)) {
    scratch_size(op, c.limits, w.scratch, &s_);
    std::fill_n(s_.weights, op.ratio, 1.0F / static_cast<float>(op.ratio));
  }

  // Rows first..end-1 of a sequence.
  void run(const SequenceRows& rows, int32_t first, int32_t end) {
    const auto sequence = static_cast<size_t>(c_.pass->sequences[static_cast<size_t>(first)]);
    view_ = &c_.pass->views[sequence];
    // In the page table: the rows of a dense sequence too.
    table_end_ = rows.dense ? view_->committed + end - rows.begin : view_->committed;
    score(first, end, 0, table_end_ / op_.ratio);
    for (int32_t row = first; row < end; ++row) {
      int32_t n_tokens = view_->committed + row - rows.begin + 1;
      if (!rows.dense) {
        n_tokens = table_end_ + find_path(row);
        score(row, row + 1, table_end_ / op_.ratio, n_tokens / op_.ratio, row - first);
      }
      choose(first, row, n_tokens);
    }
  }

private:
  int32_t slot(int32_t position) const {
    if (position >= table_end_) return s_.path[position - table_end_];
    return view_->pages[static_cast<size_t>(position / c_.limits.page_tokens)] *
               c_.limits.page_tokens +
           position % c_.limits.page_tokens;
  }

  // The slots of a row of a tree and its ancestors; returns how many.
  int32_t find_path(int32_t row) {
    int32_t n = 0;
    for (int32_t r = row; r >= 0; r = c_.pass->parent(r))
      s_.path[n++] = c_.pass->slots[static_cast<size_t>(r)];
    std::reverse(s_.path, s_.path + n);
    return n;
  }

  // Scores of blocks begin..end-1, for rows that lie from line `line` on in the scores.
  void score(int32_t first_row, int32_t end_row, int32_t begin, int32_t end, int64_t line = 0) {
    const HeadRows q = c_.heads(op_.q);
    const float factor = 1.0F / std::sqrt(static_cast<float>(op_.q.dim));
    const int64_t n_rows = end_row - first_row;
    for (int32_t block = begin; block < end; block += kBlocks) {
      const int64_t n = std::min<int64_t>(kBlocks, end - block);
      for (int64_t i = 0; i < n; ++i)
        make_key(block + static_cast<int32_t>(i), s_.keys + i * op_.q.dim);
      for (int32_t head = 0; head < op_.q.count; ++head) {
        c_.kernels->linear({.w = s_.keys,
                            .n_out = n,
                            .k = op_.q.dim,
                            .x = q.at(first_row, head),
                            .x_stride = q.row_stride,
                            .n_rows = n_rows,
                            .out = s_.dots,
                            .out_stride = kBlocks});
        for (int64_t r = 0; r < n_rows; ++r) {
          float* scores = s_.scores + (line + r) * max_blocks_ + block;
          const float* dots = s_.dots + r * kBlocks;
          for (int64_t i = 0; i < n; ++i)
            scores[i] = (head == 0 ? 0.0F : scores[i]) + factor * std::max(0.0F, dots[i]);
        }
      }
    }
  }

  // rope(Norm(mean of the block's raw keys), position of its first token)
  void make_key(int32_t block, float* key) const {
    const int64_t dim = op_.q.dim;
    const Values type = cache_.by_element ? Values::f32 : value_type(cache_.dtype);
    for (int32_t t = 0; t < op_.ratio; ++t) {
      const int32_t at = slot(block * op_.ratio + t);
      s_.entries[t] = cache_.data + at * cache_.entry_bytes;
      if (!cache_.by_element) continue;
      float* raw = s_.raw + t * dim;
      for (int64_t e = 0; e < dim; ++e)
        raw[e] = element(cache_, at, e);
      s_.entries[t] = raw;
    }
    std::fill_n(key, dim, 0.0F);
    c_.kernels->add_values({.weights = s_.weights,
                            .n_queries = 1,
                            .values = s_.entries,
                            .type = type,
                            .n = op_.ratio,
                            .dim = dim,
                            .out = key});
    if (op_.key_norm.present)
      normalise(c_, key, dim, op_.key_norm.eps, c_.vector(op_.key_norm.weight), key);
    const auto n_pairs = std::ssize(op_.rope.inv_freq);
    if (n_pairs == 0) return;
    block_angles(*c_.block_rope(op_), block, s_.angles);
    rotate(key, s_.angles, n_pairs, op_.rope.pairs);
  }

  // The best blocks of a row, in rising order, then the incomplete one.
  void choose(int32_t first, int32_t row, int32_t n_tokens) {
    const float* scores = s_.scores + (row - first) * max_blocks_;
    const int32_t n = n_tokens / op_.ratio;
    const int32_t n_best = std::min(n, op_.budget);
    for (int32_t i = 0; i < n; ++i)
      s_.order[i] = i;
    if (n_best < n) {
      std::nth_element(s_.order, s_.order + n_best, s_.order + n, [&](int32_t a, int32_t b) {
        return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
      });
      std::sort(s_.order, s_.order + n_best);
    }
    int32_t* out = c_.i32(op_.out) + row * c_.width(op_.out);
    std::copy_n(s_.order, n_best, out);
    std::fill(out + n_best, out + c_.width(op_.out), -1);
    if (n_tokens % op_.ratio != 0) out[n_best] = n;
  }

  const Context& c_;
  const plan::SelectBlocks& op_;
  const StateView& cache_;
  int64_t max_blocks_;
  Scratch s_ = {};
  const plan::SequenceView* view_ = nullptr;
  int32_t table_end_ = 0;  // positions below this are in the page table, later ones on the path
};

}  // namespace

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::SelectBlocks& op) {
  return scratch_size(op, limits, nullptr, nullptr);
}

int64_t block_rope_floats(const plan::SelectBlocks& op, const ProgramLimits& limits) {
  return (kCoarse + max_blocks(op, limits) / kCoarse + 1) * 2 * std::ssize(op.rope.inv_freq);
}

// Angles of the blocks 0..63, then of 0, 64, 128...: their sums are those of every block, which
// would be slow to compute and many to keep.
void fill_block_rope(const plan::SelectBlocks& op, const ProgramLimits& limits, float* values) {
  const auto n_pairs = std::ssize(op.rope.inv_freq);
  const int64_t n_coarse = max_blocks(op, limits) / kCoarse + 1;
  for (int64_t i = 0; i < kCoarse + n_coarse; ++i) {
    const int64_t block = i < kCoarse ? i : (i - kCoarse) * kCoarse;
    for (int64_t p = 0; p < n_pairs; ++p, values += 2) {
      const double angle = static_cast<double>(block * op.ratio) *
                           static_cast<double>(op.rope.inv_freq[static_cast<size_t>(p)]);
      const float magnitude = i < kCoarse ? op.rope.magnitude : 1.0F;
      values[0] = static_cast<float>(std::cos(angle)) * magnitude;
      values[1] = static_cast<float>(std::sin(angle)) * magnitude;
    }
  }
}

void block_angles(const BlockRope& rope, int32_t block, float* angles) {
  const float* fine = rope.values + block % kCoarse * 2 * rope.n_pairs;
  const float* coarse = rope.values + (kCoarse + block / kCoarse) * 2 * rope.n_pairs;
  for (int64_t i = 0; i < 2 * rope.n_pairs; i += 2) {
    angles[i] = fine[i] * coarse[i] - fine[i + 1] * coarse[i + 1];
    angles[i + 1] = fine[i + 1] * coarse[i] + fine[i] * coarse[i + 1];
  }
}

void run_op(const Context& c, const Worker& w, const plan::SelectBlocks& op) {
  Selecting selecting(c, w, op);
  int64_t item = 0;
  for (const SequenceRows& rows : c.sequence_rows) {
    const int32_t n = rows.end - rows.begin;
    const int32_t step = std::clamp(n / w.n_threads, 1, static_cast<int32_t>(kRows));
    for (int32_t first = rows.begin; first < rows.end; first += step) {
      if (item++ % w.n_threads == w.thread)
        selecting.run(rows, first, std::min(first + step, rows.end));
    }
  }
}

}  // namespace kapitsa::backend::cpu
