// Attention over the KV cache (cache.h): keys in tiles of 16 positions, values by position. A work
// item is a key head and a block of query rows; a row's keys are cut at multiples
// of kAttentionSplit positions, and the partial sums are merged in position order, so that a row's
// result does not depend on the rest of the pass (invariant 1).
#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace kapitsa::backend::cpu {
namespace {

constexpr int32_t kSplit = plan::kAttentionSplit;
constexpr int64_t kBlockQueries = 32;  // of one work item, at most (or one row's)
// Partial sums that threads may keep at once, to share one row's keys among them.
constexpr int64_t kPartialBytes = int64_t{4} << 20;

Plain plain_type(DType dtype) {
  if (dtype == DType::f16) return Plain::f16;
  if (dtype == DType::bf16) return Plain::bf16;
  return Plain::f32;
}

// The keys of a row by position: committed ones through the page table, then those of the pass. On
// paths that are not dense the index of a key stands for its position.
struct Keys {
  const plan::SequenceView* view = nullptr;
  int32_t page_tokens = 0;
  int32_t begin = 0, end = 0;
  int32_t committed = 0;          // positions below this are in the page table
  const int32_t* path = nullptr;  // slots of the others

  int32_t slot(int32_t position) const {
    if (position >= committed) return path[position - committed];
    return view->pages[static_cast<size_t>(position / page_tokens)] * page_tokens +
           position % page_tokens;
  }
};

// Rows of one sequence that are attended together.
struct Block {
  int32_t first = 0, n_rows = 0;
};

// Softmax state of a query so far; the sum of exp(score - highest) * v lies beside it.
struct Running {
  float highest = -std::numeric_limits<float>::infinity();
  float sum = 0.0F;
};

// What a thread keeps for a work item of up to n_queries.
struct Scratch {
  float* q;                // (queries, q dim), scaled
  float* scores;           // (queries, kSplit)
  float* partial;          // (queries, out dim)
  Running* part;           // (queries) of the partial sums
  Running* running;        // (queries)
  const void** value;      // (kSplit)
  std::byte* tile;         // (q dim, 16): gathered keys
  uint8_t* records;        // (queries): q in whole numbers, for keys of q8_0
  const uint8_t** record;  // (queries)
  float** score;           // (queries): rows of scores
  int32_t* path;           // slots
  int32_t* ends;           // (rows of a block, 2): begin and end of a row's positions
};

int64_t n_block_queries(const plan::Attend& op) {
  return std::max<int64_t>(kBlockQueries, op.q.count / op.n_kv_heads);
}

// Rows whose keys are found together; a selection is a row's own.
int64_t block_rows(const plan::Attend& op) {
  if (op.selection) return 1;
  return n_block_queries(op) / (op.q.count / op.n_kv_heads);
}

// Keys of a row that may lie on its path: those of the pass, or all that it selects.
int64_t max_path(const plan::Plan& plan, const ProgramLimits& limits, const plan::Attend& op) {
  if (!op.selection) return limits.max_rows;
  return limits.max_rows + plan.buffer(op.selection).width * op.selection_block;
}

int64_t scratch_size(const plan::Plan& plan, const ProgramLimits& limits, const plan::Attend& op,
                     std::byte* base, Scratch* scratch) {
  int64_t size = 0;
  const auto take = [&](int64_t bytes) {
    std::byte* from = base == nullptr ? nullptr : base + size;
    size += round_up(bytes, kLine);
    return from;
  };
  const int64_t n = n_block_queries(op);
  Scratch s = {};
  s.q = reinterpret_cast<float*>(take(n * op.q.dim * 4));
  s.scores = reinterpret_cast<float*>(take(n * kSplit * 4));
  s.partial = reinterpret_cast<float*>(take(n * op.out.dim * 4));
  s.part = reinterpret_cast<Running*>(take(n * int64_t{sizeof(Running)}));
  s.running = reinterpret_cast<Running*>(take(n * int64_t{sizeof(Running)}));
  s.value = reinterpret_cast<const void**>(take(kSplit * int64_t{sizeof(void*)}));
  s.tile = take(int64_t{op.q.dim} * kKeyTile * 4);
  if (plan.state(op.k_cache).dtype == DType::q8_0) {
    s.records = reinterpret_cast<uint8_t*>(take(n * activation_layout(op.q.dim).bytes));
    s.record = reinterpret_cast<const uint8_t**>(take(n * int64_t{sizeof(void*)}));
    s.score = reinterpret_cast<float**>(take(n * int64_t{sizeof(void*)}));
  }
  s.path = reinterpret_cast<int32_t*>(take(max_path(plan, limits, op) * 4));
  s.ends = reinterpret_cast<int32_t*>(take(n * 8));
  if (scratch != nullptr) *scratch = s;
  return size;
}

class Attending {
public:
  Attending(const Context& c, const Worker& w, const plan::Attend& op)
      : c_(c), op_(op), k_cache_(c.state(op.k_cache)), v_cache_(c.state(op.v_cache)),
        group_(op.q.count / op.n_kv_heads) {
    scratch_size(*c.plan, c.limits, op, w.scratch, &s_);
  }

  // Names a work item; its positions are those of all its rows together.
  void begin(const Block& block, int32_t kv_head) {
    block_ = block;
    kv_head_ = kv_head;
    n_queries_ = block.n_rows * group_;
    find_keys();
  }

  // Prepares its queries, before run_split() or run_all().
  void load_queries() {
    const HeadRows q = c_.heads(op_.q);
    const int64_t dim = op_.q.dim;
    for (int64_t i = 0; i < n_queries_; ++i) {
      const float* from = q.at(row_of(i), head_of(i));
      float* to = s_.q + i * dim;
      for (int64_t d = 0; d < dim; ++d)
        to[d] = from[d] * op_.scale;
      if (k_cache_.dtype != DType::q8_0) continue;
      uint8_t* record = s_.records + i * activation_layout(dim).bytes;
      c_.kernels->quantise(to, dim, 0, dim, kExactPlanes, record);
      s_.record[i] = record;
      s_.score[i] = s_.scores + i * kSplit;
    }
  }

  int32_t first_split() const { return keys_.begin / kSplit; }
  int32_t end_split() const { return (keys_.end + kSplit - 1) / kSplit; }

  // Partial sums of one split, for all queries: part[i] and partial row i.
  void run_split(int32_t split, Running* part, float* partial) {
    const int32_t begin = std::max(keys_.begin, split * kSplit);
    const int32_t end = std::min(keys_.end, (split + 1) * kSplit);
    score(begin, end, split * kSplit);
    for (int64_t i = 0; i < n_queries_; ++i) {
      const auto [from, to] = range_of(i, begin, end);
      float* scores = s_.scores + i * kSplit + (from - split * kSplit);
      const int64_t n = to - from;
      part[i] = {};
      if (n <= 0) continue;
      if (op_.softcap > 0.0F) c_.kernels->softcap(scores, scores, n, op_.softcap);
      part[i].highest = c_.kernels->largest(scores, n);
      part[i].sum = c_.kernels->exp_sum(scores, n, part[i].highest);
    }
    std::fill_n(partial, n_queries_ * op_.out.dim, 0.0F);
    add_values(begin, end, split * kSplit, partial);
  }

  // All splits in order, straight into the output.
  void run_all() {
    std::fill_n(s_.running, n_queries_, Running{});
    for (int64_t i = 0; i < n_queries_; ++i)
      std::fill_n(out_of(i), op_.out.dim, 0.0F);
    for (int32_t split = first_split(); split < end_split(); ++split) {
      run_split(split, s_.part, s_.partial);
      for (int64_t i = 0; i < n_queries_; ++i)
        merge(s_.part[i], s_.partial + i * op_.out.dim, s_.running[i], out_of(i));
    }
    for (int64_t i = 0; i < n_queries_; ++i)
      finish(row_of(i), head_of(i), s_.running[i]);
  }

  // out and the partial sum, both brought to the larger of the two maxima.
  void merge(const Running& part, const float* partial, Running& running, float* out) const {
    if (part.sum == 0.0F) return;
    const float highest = std::max(running.highest, part.highest);
    const float a = std::exp(running.highest - highest);
    const float b = std::exp(part.highest - highest);
    running.sum = a * running.sum + b * part.sum;
    running.highest = highest;
    for (int64_t i = 0; i < op_.out.dim; ++i)
      out[i] = a * out[i] + b * partial[i];
  }

  // The sink, which is a score without a value, and the division by the sum.
  void finish(int64_t row, int64_t head, Running running) const {
    float* out = c_.heads(op_.out).at(row, head);
    if (const float* sinks = c_.vector(op_.sinks)) {
      const float highest = std::max(running.highest, sinks[head]);
      const float a = std::exp(running.highest - highest);
      running.sum = a * running.sum + std::exp(sinks[head] - highest);
      for (int64_t i = 0; i < op_.out.dim; ++i)
        out[i] *= a;
    }
    const float factor = running.sum > 0.0F ? 1.0F / running.sum : 0.0F;
    for (int64_t i = 0; i < op_.out.dim; ++i)
      out[i] *= factor;
  }

  int64_t row_of(int64_t query) const { return block_.first + query / group_; }
  int64_t head_of(int64_t query) const { return kv_head_ * group_ + query % group_; }

private:
  float* out_of(int64_t query) const { return c_.heads(op_.out).at(row_of(query), head_of(query)); }
  int32_t position_of(int64_t row) const { return c_.pass->positions[static_cast<size_t>(row)]; }

  // Positions of a query's row within begin..end.
  std::pair<int32_t, int32_t> range_of(int64_t query, int32_t begin, int32_t end) const {
    const int32_t* row = s_.ends + 2 * (query / group_);
    return {std::max(begin, row[0]), std::min(end, row[1])};
  }

  void find_keys() {
    const plan::Pass& pass = *c_.pass;
    const auto sequence = static_cast<size_t>(pass.sequences[static_cast<size_t>(block_.first)]);
    const SequenceRows& rows = c_.sequence_rows[sequence];
    keys_ = {.view = &pass.views[sequence],
             .page_tokens = c_.limits.page_tokens,
             .committed = pass.views[sequence].committed,
             .path = s_.path};
    if (op_.selection) return find_selected(rows);
    if (!rows.dense) return find_path(rows);
    // The rows of the pass lie in the page table too.
    const int32_t last = keys_.committed + rows.end - rows.begin;
    keys_.committed = last;
    keys_.begin = last;
    for (int32_t i = 0; i < block_.n_rows; ++i) {
      const int32_t position = position_of(block_.first + i);
      const int32_t end = last_position(rows, position);
      s_.ends[2 * i] = window_begin(position, keys_.view->committed);
      s_.ends[2 * i + 1] = end;
      keys_.begin = std::min(keys_.begin, s_.ends[2 * i]);
      keys_.end = std::max(keys_.end, end);
    }
  }

  // A single row of a tree: its ancestors and itself, then the rows after it that the mask shows.
  void find_path(const SequenceRows& rows) {
    const plan::Pass& pass = *c_.pass;
    const int32_t row = block_.first;
    const int32_t begin = window_begin(position_of(row), keys_.committed);
    int32_t n = 0;
    int32_t first = position_of(row);
    for (int32_t r = row; r >= 0 && position_of(r) >= begin; r = pass.parent(r)) {
      s_.path[n++] = pass.slots[static_cast<size_t>(r)];
      first = position_of(r);
    }
    std::reverse(s_.path, s_.path + n);
    for (int32_t r = row + 1; op_.mask != plan::Mask::causal && r < rows.end; ++r) {
      if (position_of(r) < block_end(position_of(row)))
        s_.path[n++] = pass.slots[static_cast<size_t>(r)];
    }
    keys_.begin = begin;
    if (begin >= keys_.committed) keys_.begin = keys_.committed = first;
    keys_.end = keys_.committed + n;
    s_.ends[0] = keys_.begin;
    s_.ends[1] = keys_.end;
  }

  // A single row's keys in the blocks that it selects, all of them on the path: cut by their number
  // rather than their position.
  void find_selected(const SequenceRows& rows) {
    const plan::Pass& pass = *c_.pass;
    const int32_t row = block_.first;
    const int32_t* selection = c_.i32(op_.selection) + row * c_.width(op_.selection);
    const int32_t* selection_end = selection + c_.width(op_.selection);
    const int32_t begin = window_begin(position_of(row), keys_.committed);
    const int32_t end = rows.dense ? last_position(rows, position_of(row)) : keys_.committed;
    keys_.committed = end;
    int32_t n = 0;
    for (const int32_t* block = selection; block < selection_end; ++block) {
      if (*block < 0) continue;
      const int32_t first = *block * op_.selection_block;
      for (int32_t p = std::max(begin, first); p < std::min(end, first + op_.selection_block); ++p)
        s_.path[n++] = keys_.slot(p);
    }
    const auto append = [&](int32_t r) {
      const int32_t block = position_of(r) / op_.selection_block;
      const bool selected = std::find(selection, selection_end, block) != selection_end;
      if (position_of(r) >= begin && selected) s_.path[n++] = pass.slots[static_cast<size_t>(r)];
    };
    if (!rows.dense) {
      const int32_t first = n;
      for (int32_t r = row; r >= 0; r = pass.parent(r))
        append(r);
      std::reverse(s_.path + first, s_.path + n);
      for (int32_t r = row + 1; op_.mask != plan::Mask::causal && r < rows.end; ++r) {
        if (position_of(r) < block_end(position_of(row))) append(r);
      }
    }
    keys_.committed = 0;
    keys_.begin = s_.ends[0] = 0;
    keys_.end = s_.ends[1] = n;
  }

  // End of the positions of a dense sequence that the mask shows to a position.
  int32_t last_position(const SequenceRows& rows, int32_t position) const {
    const int32_t last = keys_.view->committed + rows.end - rows.begin;
    if (op_.mask == plan::Mask::causal) return position + 1;
    return std::min(last, block_end(position));
  }
  int32_t block_end(int32_t position) const {
    return op_.mask == plan::Mask::block ? (position / op_.block + 1) * op_.block
                                         : std::numeric_limits<int32_t>::max();
  }

  int32_t window_begin(int32_t position, int32_t committed) const {
    if (op_.window <= 0) return 0;
    const int32_t last = op_.mask == plan::Mask::bidirectional ? committed : position;
    return std::max(0, last - op_.window + 1);
  }

  // Scores of positions begin..end-1, at their place relative to `base`.
  void score(int32_t begin, int32_t end, int32_t base) {
    for (int32_t tile = begin / kKeyTile * kKeyTile; tile < end;) {
      if (tile + kKeyTile <= keys_.committed) {
        const int32_t slot = keys_.slot(tile);
        const int32_t n = k_cache_.dtype == DType::q8_0 ? n_adjacent(tile, slot, end) : 1;
        score_tiles(key_tile(k_cache_, kv_head_, slot), n, tile - base);
        tile += n * kKeyTile;
      } else {
        std::memset(s_.tile, 0, static_cast<size_t>(key_tile_bytes(k_cache_)));
        const int32_t last = std::min(tile + kKeyTile, end);
        for (int32_t position = std::max(tile, begin); position < last; ++position)
          copy_key(k_cache_, kv_head_, keys_.slot(position), s_.tile, position % kKeyTile);
        score_tiles(s_.tile, 1, tile - base);
        tile += kKeyTile;
      }
    }
  }

  // How many whole tiles lie one after another from this one on.
  int32_t n_adjacent(int32_t tile, int32_t slot, int32_t end) const {
    int32_t n = 1;
    while (tile + n * kKeyTile < end && tile + (n + 1) * kKeyTile <= keys_.committed &&
           keys_.slot(tile + n * kKeyTile) == slot + n * kKeyTile)
      ++n;
    return n;
  }

  // Scores of n tiles, from number `first` of a row of scores on.
  void score_tiles(const std::byte* keys, int32_t n, int32_t first) {
    if (k_cache_.dtype != DType::q8_0) {
      c_.kernels->score_tile({.q = s_.q,
                              .n_queries = n_queries_,
                              .dim = op_.q.dim,
                              .keys = keys,
                              .type = plain_type(k_cache_.dtype),
                              .scores = s_.scores + first,
                              .stride = kSplit});
      return;
    }
    const int32_t first_tile = first / kKeyTile;
    c_.kernels->packed_linear({.panels = reinterpret_cast<const uint8_t*>(keys),
                               .panels_tile = first_tile,
                               .format = Format::q8_0,
                               .n_out = kSplit,
                               .k = op_.q.dim,
                               .first_tile = first_tile,
                               .end_tile = first_tile + n,
                               .x = s_.record,
                               .planes = kExactPlanes,
                               .n_rows = n_queries_,
                               .out = s_.score});
  }

  // Adds weight * value over each query's own positions, in order. Positions that all queries see
  // are done for all at once; no query reads a value that it may not see.
  void add_values(int32_t begin, int32_t end, int32_t base, float* partial) {
    int32_t all_begin = begin, all_end = end;
    for (int64_t i = 0; i < n_queries_; i += group_) {
      const auto [from, to] = range_of(i, begin, end);
      all_begin = std::max(all_begin, from);
      all_end = std::min(all_end, to);
    }
    all_end = std::max(all_begin, all_end);
    for (int32_t p = begin; p < end; ++p)
      s_.value[p - base] = value_head(v_cache_, kv_head_, keys_.slot(p));
    const auto add = [&](int64_t query, int64_t n_queries, int32_t from, int32_t to) {
      if (from >= to) return;
      c_.kernels->add_values({.weights = s_.scores + query * kSplit + (from - base),
                              .weight_stride = kSplit,
                              .n_queries = n_queries,
                              .values = s_.value + (from - base),
                              .type = value_type(v_cache_.dtype),
                              .n = to - from,
                              .dim = op_.out.dim,
                              .out = partial + query * op_.out.dim,
                              .out_stride = op_.out.dim});
    };
    const auto add_rows = [&](bool before) {
      for (int64_t i = 0; i < n_queries_; i += group_) {
        const auto [from, to] = range_of(i, begin, end);
        if (before) {
          add(i, group_, from, std::min(to, all_begin));
        } else {
          add(i, group_, std::max(from, all_end), to);
        }
      }
    };
    add_rows(true);
    add(0, n_queries_, all_begin, all_end);
    add_rows(false);
  }

  const Context& c_;
  const plan::Attend& op_;
  const StateView& k_cache_;
  const StateView& v_cache_;
  int32_t group_;  // query heads of a key head
  Scratch s_ = {};
  Block block_;
  int32_t kv_head_ = 0;
  int64_t n_queries_ = 0;
  Keys keys_;
};

// f(block) for the blocks of the pass in order.
template <typename F>
void for_blocks(const Context& c, const plan::Attend& op, F&& f) {
  const auto at_once = static_cast<int32_t>(block_rows(op));
  for (const SequenceRows& rows : c.sequence_rows) {
    const int32_t step = rows.dense ? at_once : 1;
    for (int32_t r = rows.begin; r < rows.end; r += step)
      f(Block{r, std::min(step, rows.end - r)});
  }
}

// out *= f(gate) for one head.
void apply_gate(const Context& c, const plan::Attention& op, int64_t row, int64_t head) {
  float* out = c.heads(op.attend.out).at(row, head);
  const float* gate = c.heads(op.gate).at(row, head);
  constexpr int64_t kPart = 64;
  float part[kPart];
  for (int64_t i = 0; i < op.attend.out.dim; i += kPart) {
    const int64_t n = std::min(kPart, op.attend.out.dim - i);
    const int64_t n_gates = op.gate.dim == 1 ? 1 : n;
    const float* from = op.gate.dim == 1 ? gate : gate + i;
    if (op.gate_activation == plan::Activation::identity) {
      std::copy_n(from, n_gates, part);
    } else {
      c.kernels->activate(kernel_function(op.gate_activation), from, part, n_gates);
    }
    for (int64_t j = 0; j < n; ++j)
      out[i + j] *= part[n_gates == 1 ? 0 : j];
  }
}

// The partial sums of a pass whose keys are shared out by splits: for each (block, key head,
// split).
struct PartialSums {
  int64_t queries;  // of an item, at most
  int64_t dim;
  std::byte* base;
  int64_t item_bytes() const {
    return queries * (round_up(dim * 4, 16) + static_cast<int64_t>(sizeof(Running)));
  }
  Running* running(int64_t item) const {
    return reinterpret_cast<Running*>(base + item * item_bytes());
  }
  float* values(int64_t item) const { return reinterpret_cast<float*>(running(item) + queries); }
};

// Runs `attend`, then `finished(row, head)` on the thread that wrote that head.
template <typename F>
void run_attend(const Context& c, const Worker& w, const plan::Attend& op, F&& finished) {
  Attending attending(c, w, op);
  // Few rows: threads share the splits of a row's keys, and merge them after a meeting. The count
  // of items depends on the pass only, so that all threads decide alike.
  const int32_t group = op.q.count / op.n_kv_heads;
  int64_t n_items = 0, n_blocks = 0, n_rows = 0;
  for_blocks(c, op, [&](const Block& block) {
    attending.begin(block, 0);
    n_items += op.n_kv_heads * int64_t{attending.end_split() - attending.first_split()};
    n_blocks += op.n_kv_heads;
    n_rows = std::max<int64_t>(n_rows, block.n_rows);
  });
  const PartialSums sums = {.queries = n_rows * group, .dim = op.out.dim, .base = w.shared};
  const bool by_split = n_blocks < 8 * w.n_threads && n_items > n_blocks &&
                        n_items * sums.item_bytes() <= kPartialBytes;
  int64_t item = 0;
  for_blocks(c, op, [&](const Block& block) {
    for (int32_t head = 0; head < op.n_kv_heads; ++head) {
      if (!by_split) {
        if (item++ % w.n_threads != w.thread) continue;
        attending.begin(block, head);
        attending.load_queries();
        attending.run_all();
        for (int64_t i = 0; i < block.n_rows * group; ++i)
          finished(attending.row_of(i), attending.head_of(i));
        continue;
      }
      attending.begin(block, head);
      attending.load_queries();
      for (int32_t split = attending.first_split(); split < attending.end_split();
           ++split, ++item) {
        if (item % w.n_threads == w.thread)
          attending.run_split(split, sums.running(item), sums.values(item));
      }
    }
  });
  if (!by_split) return;
  c.pool->barrier();
  item = 0;
  int64_t merged = 0;
  for_blocks(c, op, [&](const Block& block) {
    for (int32_t head = 0; head < op.n_kv_heads; ++head) {
      attending.begin(block, head);
      const int64_t n_splits = attending.end_split() - attending.first_split();
      for (int64_t i = 0; i < block.n_rows * group; ++i) {
        if (merged++ % w.n_threads != w.thread) continue;
        const int64_t row = attending.row_of(i), q_head = attending.head_of(i);
        float* out = c.heads(op.out).at(row, q_head);
        std::fill_n(out, op.out.dim, 0.0F);
        Running running;
        for (int64_t s = item; s < item + n_splits; ++s)
          attending.merge(sums.running(s)[i], sums.values(s) + i * op.out.dim, running, out);
        attending.finish(row, q_head, running);
        finished(row, q_head);
      }
      item += n_splits;
    }
  });
}

}  // namespace

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Attend& op) {
  return scratch_size(plan, limits, op, nullptr, nullptr);
}
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::Attention& op) {
  return scratch_bytes(plan, limits, op.attend);
}
int64_t shared_bytes(const plan::Plan& /*plan*/, const ProgramLimits& /*limits*/,
                     const plan::Attend& /*op*/) {
  return kPartialBytes;
}
int64_t shared_bytes(const plan::Plan& /*plan*/, const ProgramLimits& /*limits*/,
                     const plan::Attention& /*op*/) {
  return kPartialBytes;
}

void run_op(const Context& c, const Worker& w, const plan::CacheAppend& op) {
  const StateView& cache = c.state(op.cache);
  const HeadRows in = c.heads(op.in);
  const Range rows = partition(c.pass->n_rows(), w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t h = 0; h < op.in.count; ++h)
      append_head(cache, c.pass->slots[static_cast<size_t>(row)], h * op.in.dim, in.at(row, h),
                  op.in.dim);
  }
}

void run_op(const Context& c, const Worker& w, const plan::AttentionPrepare& op) {
  const auto n_pairs = std::ssize(op.rope.inv_freq);
  const float* angles = n_pairs > 0 ? c.rope_values(op.rope) : nullptr;
  // The heads of a row in a line: q, k, v.
  const int64_t n_heads = op.q.count + op.k.count + op.v.count;
  const Range items = partition(c.pass->n_rows() * n_heads, w.thread, w.n_threads);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = item / n_heads;
    int64_t h = item % n_heads;
    const bool is_q = h < op.q.count;
    const bool is_v = h >= op.q.count + op.k.count;
    h -= is_v ? op.q.count + op.k.count : is_q ? 0 : op.q.count;
    const plan::Heads& heads = is_q ? op.q : is_v ? op.v : op.k;
    const plan::Norm& norm = is_q ? op.q_norm : is_v ? op.v_norm : op.k_norm;
    float* x = c.heads(heads).at(row, h);
    if (norm.present) {
      const float* weight = c.vector(norm.weight);
      const bool shared = weight == nullptr || c.weight(norm.weight).in == heads.dim;
      normalise(c, x, heads.dim, norm.eps, shared ? weight : weight + h * heads.dim, x);
    }
    if (is_q && op.q_scale != 1.0F) {
      for (int64_t i = 0; i < heads.dim; ++i)
        x[i] *= op.q_scale;
    }
    if (!is_v && n_pairs > 0) rotate(x, angles + row * 2 * n_pairs, n_pairs, op.rope.pairs);
    if (!is_q)
      append_head(c.state(is_v ? op.v_cache : op.k_cache), c.pass->slots[static_cast<size_t>(row)],
                  h * heads.dim, x, heads.dim);
  }
}

void run_op(const Context& c, const Worker& w, const plan::Attend& op) {
  run_attend(c, w, op, [](int64_t, int64_t) {});
}

void run_op(const Context& c, const Worker& w, const plan::Attention& op) {
  run_attend(c, w, op.attend, [&](int64_t row, int64_t head) {
    if (op.gate.buffer) apply_gate(c, op, row, head);
  });
}

}  // namespace kapitsa::backend::cpu
