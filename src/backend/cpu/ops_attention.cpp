// The KV cache and attention over it. One work item is a (row, query head); its keys are cut at
// multiples of kAttentionSplit positions, and the partial sums are merged in position order, so
// that a row's result does not depend on the rest of the pass (invariant 1).
#include "backend/cpu/ops.h"
#include "base/half.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace kapitsa::backend::cpu {
namespace {

Plain plain_type(DType dtype) {
  if (dtype == DType::f16) return Plain::f16;
  if (dtype == DType::bf16) return Plain::bf16;
  return Plain::f32;
}

// Walks the slots of a row's keys in position order: committed ones through the page table, then
// those of the pass.
class Keys {
public:
  Keys(const Context& c, const plan::Attend& op, int64_t row, int32_t* path)
      : pass_(*c.pass),
        view_(pass_.views[static_cast<size_t>(pass_.sequences[static_cast<size_t>(row)])]),
        page_tokens_(c.limits.page_tokens), path_(path) {
    const int32_t position = position_of(static_cast<int32_t>(row));
    int32_t window_last = position;
    if (op.mask == plan::Mask::bidirectional) window_last = view_.committed;
    next_ = op.window > 0 ? std::max(0, window_last - op.window + 1) : 0;
    collect_path(c, op, static_cast<int32_t>(row), next_);
  }

  // The slots of the next partial sum's keys; 0 when there are none left.
  int32_t next_split(int32_t* slots) {
    int32_t n = 0;
    if (next_ < view_.committed) {
      split_ = next_ / plan::kAttentionSplit;
      const int32_t stop = std::min(view_.committed, (split_ + 1) * plan::kAttentionSplit);
      for (; next_ < stop; ++next_)
        slots[n++] = view_.pages[static_cast<size_t>(next_ / page_tokens_)] * page_tokens_ +
                     next_ % page_tokens_;
    } else if (path_at_ < n_path_) {
      split_ = position_of(path_[path_at_]) / plan::kAttentionSplit;
    }
    while (path_at_ < n_path_ && n < plan::kAttentionSplit && next_ >= view_.committed &&
           position_of(path_[path_at_]) / plan::kAttentionSplit == split_) {
      slots[n++] = pass_.slots[static_cast<size_t>(path_[path_at_++])];
    }
    return n;
  }

private:
  int32_t position_of(int32_t row) const { return pass_.positions[static_cast<size_t>(row)]; }

  // Rows of the pass that the row sees: its ancestors, itself, and those after it that the mask
  // shows.
  void collect_path(const Context& c, const plan::Attend& op, int32_t row, int32_t begin) {
    for (int32_t r = row; r >= 0 && position_of(r) >= begin; r = pass_.parent(r))
      path_[n_path_++] = r;
    std::reverse(path_, path_ + n_path_);
    if (op.mask == plan::Mask::causal) return;
    const auto sequence = static_cast<size_t>(pass_.sequences[static_cast<size_t>(row)]);
    const int32_t block_end = op.mask == plan::Mask::block
                                  ? (position_of(row) / op.block + 1) * op.block
                                  : std::numeric_limits<int32_t>::max();
    for (int32_t r = row + 1; r < c.sequence_rows[sequence].end; ++r) {
      if (position_of(r) < block_end) path_[n_path_++] = r;
    }
  }

  const plan::Pass& pass_;
  const plan::SequenceView& view_;
  int32_t page_tokens_;
  int32_t next_ = 0;
  int32_t split_ = 0;
  int32_t* path_;
  int32_t n_path_ = 0, path_at_ = 0;
};

struct AttendScratch {
  int32_t* slots;  // (kAttentionSplit)
  float* scores;   // (kAttentionSplit)
  float* partial;  // (out dim)
  int32_t* path;   // (max_rows)
};

// Softmax state of a query so far: out holds the sum of exp(score - highest) * v.
struct Running {
  float highest = -INFINITY;
  float sum = 0.0F;
};

// out = out and the partial sum, both brought to the larger of the two maxima.
void merge(const Running& part, const float* partial, int64_t dim, Running& running, float* out) {
  const float highest = std::max(running.highest, part.highest);
  const float a = std::exp(running.highest - highest);
  const float b = std::exp(part.highest - highest);
  running.sum = a * running.sum + b * part.sum;
  running.highest = highest;
  for (int64_t i = 0; i < dim; ++i)
    out[i] = a * out[i] + b * partial[i];
}

void attend_head(const Context& c, const plan::Attend& op, int64_t row, int64_t head,
                 const AttendScratch& scratch) {
  const StateView& k_cache = c.state(op.k_cache);
  const StateView& v_cache = c.state(op.v_cache);
  const Plain k_type = plain_type(k_cache.dtype);
  const Plain v_type = plain_type(v_cache.dtype);
  const int64_t kv_head = head / (op.q.count / op.n_kv_heads);
  const std::byte* k_base =
      k_cache.data + kv_head * op.q.dim * dtype_info(k_cache.dtype).block_bytes;
  const std::byte* v_base =
      v_cache.data + kv_head * op.out.dim * dtype_info(v_cache.dtype).block_bytes;
  const float* q = c.heads(op.q).at(row, head);
  float* out = c.heads(op.out).at(row, head);
  std::fill_n(out, op.out.dim, 0.0F);

  Keys keys(c, op, row, scratch.path);
  Running running;
  while (const int32_t n = keys.next_split(scratch.slots)) {
    Running part;
    for (int32_t i = 0; i < n; ++i) {
      float score = op.scale * c.kernels->dot(q, k_base + scratch.slots[i] * k_cache.entry_bytes,
                                              k_type, op.q.dim);
      if (op.softcap > 0.0F) c.kernels->softcap(&score, &score, 1, op.softcap);
      scratch.scores[i] = score;
      part.highest = std::max(part.highest, score);
    }
    part.sum = c.kernels->exp_sum(scratch.scores, n, part.highest);
    std::fill_n(scratch.partial, op.out.dim, 0.0F);
    for (int32_t i = 0; i < n; ++i) {
      c.kernels->add_scaled(scratch.scores[i], v_base + scratch.slots[i] * v_cache.entry_bytes,
                            v_type, scratch.partial, op.out.dim);
    }
    merge(part, scratch.partial, op.out.dim, running, out);
  }
  if (const float* sinks = c.vector(op.sinks)) {
    std::fill_n(scratch.partial, op.out.dim, 0.0F);
    merge({.highest = sinks[head], .sum = 1.0F}, scratch.partial, op.out.dim, running, out);
  }
  const float factor = running.sum > 0.0F ? 1.0F / running.sum : 0.0F;
  for (int64_t i = 0; i < op.out.dim; ++i)
    out[i] *= factor;
}

}  // namespace

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::Attend& op) {
  return round_up((2 * plan::kAttentionSplit + op.out.dim + limits.max_rows) * 4, kLine);
}

void run_op(const Context& c, const Worker& w, const plan::CacheAppend& op) {
  const StateView& cache = c.state(op.cache);
  const HeadRows in = c.heads(op.in);
  const int64_t dim = op.in.dim;
  const int64_t element_bytes = dtype_info(cache.dtype).block_bytes;
  const Range rows = partition(c.pass->n_rows(), w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::byte* entry = cache.data + c.pass->slots[static_cast<size_t>(row)] * cache.entry_bytes;
    for (int64_t h = 0; h < op.in.count; ++h) {
      const float* x = in.at(row, h);
      std::byte* to = entry + h * dim * element_bytes;
      if (cache.dtype == DType::f32) {
        std::memcpy(to, x, static_cast<size_t>(dim) * sizeof(float));
        continue;
      }
      auto* halves = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < dim; ++i)
        halves[i] = cache.dtype == DType::f16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
    }
  }
}

void run_op(const Context& c, const Worker& w, const plan::Attend& op) {
  AttendScratch scratch = {};
  scratch.slots = reinterpret_cast<int32_t*>(w.scratch);
  scratch.path = scratch.slots + plan::kAttentionSplit;
  scratch.scores = reinterpret_cast<float*>(scratch.path + c.limits.max_rows);
  scratch.partial = scratch.scores + plan::kAttentionSplit;
  const Range items = partition(c.pass->n_rows() * int64_t{op.q.count}, w.thread, w.n_threads);
  for (int64_t item = items.begin; item < items.end; ++item)
    attend_head(c, op, item / op.q.count, item % op.q.count, scratch);
}

}  // namespace kapitsa::backend::cpu
