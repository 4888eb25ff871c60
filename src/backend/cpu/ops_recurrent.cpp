// Layers with a state per sequence: causal convolution, and the two recurrences that add an outer
// product to a decaying state. A prompt goes through them in chunks of the grid, which is cut where
// the prompt begins and nowhere else, so that launches change no bits (invariant 4).
//
// A row of a decode pass steps from its parent's state, leaves the committed state alone and writes
// what would change it to the tape; replay applies tape rows to the state with the same
// instructions (invariant 3).
#include "backend/cpu/ops.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

// ---- S <- decay S + delta k^T ----

// The gated delta rule and Mamba-2 in the same terms. State: (heads, tiles of 16 value elements,
// keys, 16). Tape: for each head [k (dk) | delta (dv) | decay], so that no two heads share a part.
struct Recurrence {
  int64_t n_v = 1, dv = 1, n_k = 1, dk = 1;
  bool tiled = false;  // HeadMap
  plan::Recurrent memory;

  int64_t n_tiles() const { return (dv + kStateLanes - 1) / kStateLanes; }
  int64_t tile_floats() const { return dk * kStateLanes; }
  int64_t tape_floats() const { return dk + dv + 1; }
  int64_t key_head(int64_t head) const { return tiled ? head % n_k : head / (n_v / n_k); }
  // Value heads in an order in which those of one key head are neighbours.
  int64_t head(int64_t item) const {
    const int64_t sharers = n_v / n_k;
    return tiled ? item / sharers + item % sharers * n_k : item;
  }
  int64_t lanes(int64_t tile) const { return std::min(kStateLanes, dv - tile * kStateLanes); }
};

Recurrence recurrence_of(const plan::DeltaRule& op) {
  return {.n_v = op.v.count,
          .dv = op.v.dim,
          .n_k = op.k.count,
          .dk = op.k.dim,
          .tiled = op.head_map == plan::HeadMap::tiled,
          .memory = op.memory};
}
Recurrence recurrence_of(const plan::SsmScan& op) {
  return {
      .n_v = op.x.count, .dv = op.x.dim, .n_k = op.b.count, .dk = op.b.dim, .memory = op.memory};
}

// What the rows of a pass bring.
struct Drive {
  HeadRows q, k, v, out;
  const float* g = nullptr;         // (rows, n_v): decay = exp(g), or exp(a g) where a is present
  const float* a = nullptr;         // (n_v)
  const float* strength = nullptr;  // (rows, n_v)
  const float* skip = nullptr;      // (n_v)
  bool reads = false;

  float log_decay(int64_t at, int64_t head) const { return a != nullptr ? a[head] * g[at] : g[at]; }
  float skip_of(int64_t head) const { return skip != nullptr ? skip[head] : 0.0F; }
};

Drive drive_of(const Context& c, const plan::DeltaRule& op) {
  return {.q = c.heads(op.q),
          .k = c.heads(op.k),
          .v = c.heads(op.v),
          .out = c.heads(op.out),
          .g = c.f32(op.decay),
          .strength = c.f32(op.beta),
          .reads = true};
}
Drive drive_of(const Context& c, const plan::SsmScan& op) {
  return {.q = c.heads(op.c),
          .k = c.heads(op.b),
          .v = c.heads(op.x),
          .out = c.heads(op.out),
          .g = c.f32(op.dt),
          .a = c.vector(op.a),
          .strength = c.f32(op.dt),
          .skip = c.vector(op.d)};
}

struct TapeRow {
  float *k, *delta, *decay;
};
TapeRow tape_row(const Context& c, const Recurrence& r, int64_t row, int64_t head) {
  const StateView& tape = c.state(r.memory.tape);
  float* k = reinterpret_cast<float*>(tape.data + row * tape.entry_bytes) + head * r.tape_floats();
  return {k, k + r.dk, k + r.dk + r.dv};
}

float* tile_of(const Context& c, const Recurrence& r, int64_t slot, int64_t head, int64_t tile) {
  const StateView& state = c.state(r.memory.state);
  return reinterpret_cast<float*>(state.data + slot * state.entry_bytes) +
         (head * r.n_tiles() + tile) * r.tile_floats();
}

void replay_tile(const Context& c, const Recurrence& r, int64_t slot, int64_t head, int64_t tile,
                 std::span<const int32_t> tape_rows) {
  float* state = tile_of(c, r, slot, head, tile);
  for (const int32_t row : tape_rows) {
    const TapeRow tape = tape_row(c, r, row, head);
    c.kernels->advance_state(state, r.dk, r.lanes(tile), tape.k, *tape.decay,
                             tape.delta + tile * kStateLanes);
  }
}

// Cuts a thread's scratch into parts; without a base it only adds up their sizes.
class Parts {
public:
  explicit Parts(std::byte* base) : base_(base) {}
  template <typename T>
  void take(T*& part, int64_t count) {
    if (base_ != nullptr) part = reinterpret_cast<T*>(base_ + size_);
    size_ += round_up(count * int64_t{sizeof(T)}, kLine);
  }
  int64_t size() const { return size_; }

private:
  std::byte* base_;
  int64_t size_ = 0;
};

// ---- Decoding: row by row ----

struct StepScratch {
  float* decay = nullptr;        // (rows of the pass), for one head
  float* kq = nullptr;           // (rows)
  uint8_t* is_parent = nullptr;  // (rows)
  float* states = nullptr;       // (rows, tile): after a row of the tree
};
int64_t step_scratch(const Recurrence& r, const ProgramLimits& limits, std::byte* base,
                     StepScratch& s) {
  Parts parts(base);
  parts.take(s.decay, limits.n_tape_rows);
  parts.take(s.kq, limits.n_tape_rows);
  parts.take(s.is_parent, limits.n_tape_rows);
  parts.take(s.states, limits.n_tape_rows * r.tile_floats());
  return parts.size();
}

class Stepping {
public:
  Stepping(const Context& c, const Worker& w, const Recurrence& r, const Drive& drive)
      : c_(c), r_(r), d_(drive), n_rows_(c.pass->n_rows()) {
    step_scratch(r, c.limits, w.scratch, s_);
    std::memset(s_.is_parent, 0, static_cast<size_t>(n_rows_));
    for (int32_t row = 0; row < n_rows_; ++row) {
      if (const int32_t parent = c.pass->parent(row); parent >= 0) s_.is_parent[parent] = 1;
    }
  }

  // All rows for one value head. Tile by tile, replay and steps: the tile comes from memory once.
  void run(int64_t head) const {
    const int64_t key_head = r_.key_head(head);
    for (int32_t row = 0; row < n_rows_; ++row) {
      s_.decay[row] = std::exp(d_.log_decay(row * r_.n_v + head, head));
      s_.kq[row] =
          c_.kernels->dot(d_.k.at(row, key_head), d_.q.at(row, key_head), Plain::f32, r_.dk);
    }
    const auto& views = c_.pass->views;
    for (int64_t tile = 0; tile < r_.n_tiles(); ++tile) {
      // All sequences first: a row of one may write the tape row that another one replays.
      for (const plan::SequenceView& view : views)
        replay_tile(c_, r_, view.state_slot, head, tile, view.replay);
      for (size_t s = 0; s < views.size(); ++s) {
        const float* committed = tile_of(c_, r_, views[s].state_slot, head, tile);
        for (int32_t row = c_.sequence_rows[s].begin; row < c_.sequence_rows[s].end; ++row)
          step(row, head, tile, committed);
      }
    }
    for (int32_t row = 0; row < n_rows_; ++row) {
      const TapeRow tape = tape_row(c_, r_, row, head);
      std::copy_n(d_.k.at(row, key_head), r_.dk, tape.k);
      *tape.decay = s_.decay[row];
    }
  }

private:
  void step(int32_t row, int64_t head, int64_t tile, const float* committed) const {
    const int64_t first = tile * kStateLanes;
    const auto after = [&](int32_t of) { return s_.states + of * r_.tile_floats(); };
    const int32_t parent = c_.pass->parent(row);
    c_.kernels->step_state({.state = parent >= 0 ? after(parent) : committed,
                            .next = s_.is_parent[row] != 0 ? after(row) : nullptr,
                            .n = r_.dk,
                            .n_lanes = r_.lanes(tile),
                            .k = d_.k.at(row, r_.key_head(head)),
                            .q = d_.q.at(row, r_.key_head(head)),
                            .kq = s_.kq[row],
                            .decay = s_.decay[row],
                            .strength = d_.strength[row * r_.n_v + head],
                            .skip = d_.skip_of(head),
                            .reads = d_.reads,
                            .v = d_.v.at(row, head) + first,
                            .delta = tape_row(c_, r_, row, head).delta + first,
                            .out = d_.out.at(row, head) + first});
  }

  const Context& c_;
  const Recurrence& r_;
  const Drive& d_;
  int32_t n_rows_;
  StepScratch s_;
};

// ---- Prompts: chunks of the grid (isa/kernels.h, StateChunk) ----

constexpr int64_t kChunk = plan::kGrid;
constexpr int64_t kProductRows = 16;  // rows of a product that is cut at the diagonal

struct ChunkScratch {
  float *k = nullptr, *q = nullptr, *keys_end = nullptr;  // (chunk, dk)
  float *kk = nullptr, *qk = nullptr;                     // (chunk, chunk): k_j.k_i and k_j.q_i
  float *mix = nullptr, *blend = nullptr;                 // (chunk, chunk)
  double* log_growth = nullptr;                           // (chunk)
  float *growth = nullptr, *strength = nullptr, *left = nullptr;  // (chunk)
  float* delta = nullptr;                                         // (chunk, 16)
};
int64_t chunk_scratch(const Recurrence& r, std::byte* base, ChunkScratch& s) {
  Parts parts(base);
  for (float** rows : {&s.k, &s.q, &s.keys_end})
    parts.take(*rows, kChunk * r.dk);
  for (float** square : {&s.kk, &s.qk, &s.mix, &s.blend})
    parts.take(*square, kChunk * kChunk);
  parts.take(s.log_growth, kChunk);
  for (float** column : {&s.growth, &s.strength, &s.left})
    parts.take(*column, kChunk);
  parts.take(s.delta, kChunk * kStateLanes);
  return parts.size();
}

class Chunking {
public:
  Chunking(const Context& c, const Worker& w, const Recurrence& r, const Drive& drive)
      : c_(c), r_(r), d_(drive) {
    chunk_scratch(r, w.scratch, s_);
  }

  // A sequence's rows for the value heads of `items`.
  void run(const SequenceRows& rows, int64_t slot, Range items) {
    for (int64_t first = rows.begin; first < rows.end; first += kChunk) {
      const int64_t n = std::min<int64_t>(kChunk, rows.end - first);
      int64_t ready = -1;  // the key head whose products are there
      for (int64_t item = items.begin; item < items.end; ++item) {
        const int64_t head = r_.head(item);
        if (const int64_t key_head = r_.key_head(head); key_head != ready) {
          multiply_keys(first, n, key_head);
          ready = key_head;
        }
        apply_decays(first, n, head);
        for (int64_t tile = 0; tile < r_.n_tiles(); ++tile)
          run_tile(first, n, slot, head, tile);
      }
    }
  }

private:
  void multiply_keys(int64_t first, int64_t n, int64_t key_head) {
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(d_.k.at(first + i, key_head), r_.dk, s_.k + i * r_.dk);
      std::copy_n(d_.q.at(first + i, key_head), r_.dk, s_.q + i * r_.dk);
    }
    for (int64_t i = 0; i < n; i += kProductRows) {
      const int64_t rows = std::min(kProductRows, n - i);
      const auto multiply = [&](const float* x, float* out) {
        c_.kernels->linear({.w = s_.k,
                            .type = Plain::f32,
                            .n_out = i + rows,
                            .k = r_.dk,
                            .x = x + i * r_.dk,
                            .x_stride = r_.dk,
                            .n_rows = rows,
                            .out = out + i * kChunk,
                            .out_stride = kChunk});
      };
      if (d_.reads) multiply(s_.k, s_.kk);
      multiply(s_.q, s_.qk);
    }
  }

  // Decays are differences of logarithms: never above 1, whatever the chunk holds.
  void apply_decays(int64_t first, int64_t n, int64_t head) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = (first + i) * r_.n_v + head;
      sum += static_cast<double>(d_.log_decay(at, head));
      s_.log_growth[i] = sum;
      s_.growth[i] = static_cast<float>(sum);
      s_.strength[i] = d_.strength[at];
      float* decays = s_.blend + i * kChunk;
      for (int64_t j = 0; j <= i; ++j)
        decays[j] = static_cast<float>(sum - s_.log_growth[j]);
      c_.kernels->exp_sum(decays, i + 1, 0.0F);
      for (int64_t j = 0; d_.reads && j < i; ++j)
        s_.mix[i * kChunk + j] = s_.strength[i] * (decays[j] * s_.kk[i * kChunk + j]);
      for (int64_t j = 0; j <= i; ++j)
        decays[j] *= s_.qk[i * kChunk + j];
    }
    for (int64_t i = 0; i < n; ++i)
      s_.left[i] = static_cast<float>(sum - s_.log_growth[i]);
    c_.kernels->exp_sum(s_.growth, n, 0.0F);
    c_.kernels->exp_sum(s_.left, n, 0.0F);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < r_.dk; ++j)
        s_.keys_end[i * r_.dk + j] = s_.left[i] * s_.k[i * r_.dk + j];
    }
  }

  void run_tile(int64_t first, int64_t n, int64_t slot, int64_t head, int64_t tile) const {
    const int64_t lane = tile * kStateLanes;
    c_.kernels->chunk_state({.state = tile_of(c_, r_, slot, head, tile),
                             .n = r_.dk,
                             .n_lanes = r_.lanes(tile),
                             .n_rows = n,
                             .k = s_.k,
                             .q = s_.q,
                             .keys_end = s_.keys_end,
                             .growth = s_.growth,
                             .strength = s_.strength,
                             .mix = s_.mix,
                             .blend = s_.blend,
                             .stride = kChunk,
                             .skip = d_.skip_of(head),
                             .reads = d_.reads,
                             .v = d_.v.at(first, head) + lane,
                             .v_stride = d_.v.row_stride,
                             .delta = s_.delta,
                             .out = d_.out.at(first, head) + lane,
                             .out_stride = d_.out.row_stride});
  }

  const Context& c_;
  const Recurrence& r_;
  const Drive& d_;
  ChunkScratch s_;
};

// Threads share the value heads, of all sequences: each has its own part of states and tapes, so
// none waits for another.
template <typename Op>
void run_recurrence(const Context& c, const Worker& w, const Op& op) {
  const plan::Pass& pass = *c.pass;
  const Recurrence r = recurrence_of(op);
  const Range own = partition(r.n_v, w.thread, w.n_threads);
  const Drive drive = drive_of(c, op);
  if (pass.phase == plan::Phase::decode) {
    const Stepping stepping(c, w, r, drive);
    for (int64_t item = own.begin; item < own.end; ++item)
      stepping.run(r.head(item));
    return;
  }
  Chunking chunking(c, w, r, drive);
  for (size_t s = 0; s < pass.views.size(); ++s) {
    const plan::SequenceView& view = pass.views[s];
    for (int64_t item = own.begin; item < own.end && !view.replay.empty(); ++item) {
      for (int64_t tile = 0; tile < r.n_tiles(); ++tile)
        replay_tile(c, r, view.state_slot, r.head(item), tile, view.replay);
    }
    chunking.run(c.sequence_rows[s], view.state_slot, own);
  }
}

template <typename Op>
void replay_recurrence(const Context& c, const Worker& w, const Op& op, int32_t slot,
                       std::span<const int32_t> tape_rows) {
  const Recurrence r = recurrence_of(op);
  const Range own = partition(r.n_v, w.thread, w.n_threads);
  for (int64_t item = own.begin; item < own.end; ++item) {
    for (int64_t tile = 0; tile < r.n_tiles(); ++tile)
      replay_tile(c, r, slot, r.head(item), tile, tape_rows);
  }
}

template <typename Op>
int64_t recurrence_scratch(const ProgramLimits& limits, const Op& op) {
  const Recurrence r = recurrence_of(op);
  StepScratch steps;
  ChunkScratch chunks;
  return std::max(step_scratch(r, limits, nullptr, steps), chunk_scratch(r, nullptr, chunks));
}

// ---- Convolution ----

constexpr int64_t kChannelGrain = 16;

// State: the last n_past inputs, oldest first. Tape: the input.
struct Convolution {
  const plan::CausalConv& op;
  int64_t width, n_past;
  Range own;  // channels of this thread

  Convolution(const Context& c, const Worker& w, const plan::CausalConv& conv)
      : op(conv), width(c.width(conv.in)), n_past(int64_t{conv.taps - 1} * conv.dilation),
        own(partition(width, w.thread, w.n_threads, kChannelGrain)) {}

  float* past(const Context& c, int64_t slot) const {
    const StateView& state = c.state(op.memory.state);
    return reinterpret_cast<float*>(state.data + slot * state.entry_bytes);
  }
  float* tape(const Context& c, int64_t row) const {
    const StateView& state = c.state(op.memory.tape);
    return reinterpret_cast<float*>(state.data + row * state.entry_bytes);
  }
  // Own channels of the state after n more inputs; input(i) is one of them, of all channels.
  template <typename F>
  void push(float* state, int64_t n, F&& input) const {
    const auto bytes = static_cast<size_t>(own.end - own.begin) * sizeof(float);
    for (int64_t i = 0; n > 0 && i < n_past; ++i) {
      const float* from = i + n < n_past ? state + (i + n) * width : input(i + n - n_past);
      std::memcpy(state + i * width + own.begin, from + own.begin, bytes);
    }
  }
  void replay(const Context& c, int64_t slot, std::span<const int32_t> tape_rows) const {
    if (own.begin >= own.end) return;
    push(past(c, slot), std::ssize(tape_rows),
         [&](int64_t i) { return tape(c, tape_rows[static_cast<size_t>(i)]); });
  }
};

// The inputs of a row's taps, oldest first.
void find_taps(const Context& c, const Convolution& conv, const SequenceRows& rows, int32_t row,
               const float* past, const float** taps) {
  const float* in = c.f32(conv.op.in);
  const bool prefills = c.pass->phase == plan::Phase::prefill;
  int32_t at = row;    // the row that lies `back` inputs back, -1: it is in the state,
  int64_t before = 0;  // that many inputs before the end
  for (int64_t tap = conv.op.taps - 1; tap >= 0; --tap) {
    taps[tap] = at >= 0 ? in + at * conv.width : past + (conv.n_past - before) * conv.width;
    for (int32_t i = 0; i < conv.op.dilation; ++i) {
      if (at >= 0) at = prefills ? (at > rows.begin ? at - 1 : -1) : c.pass->parent(at);
      if (at < 0) ++before;
    }
  }
}

}  // namespace

int64_t state_width(const plan::DeltaRule& op) {
  const Recurrence r = recurrence_of(op);
  return r.n_v * r.n_tiles() * r.tile_floats();
}
int64_t state_width(const plan::SsmScan& op) {
  const Recurrence r = recurrence_of(op);
  return r.n_v * r.n_tiles() * r.tile_floats();
}

int64_t tape_width(const plan::DeltaRule& op) {
  const Recurrence r = recurrence_of(op);
  return r.n_v * r.tape_floats();
}
int64_t tape_width(const plan::SsmScan& op) {
  const Recurrence r = recurrence_of(op);
  return r.n_v * r.tape_floats();
}

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::DeltaRule& op) {
  return recurrence_scratch(limits, op);
}
int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::SsmScan& op) {
  return recurrence_scratch(limits, op);
}
int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& /*limits*/,
                      const plan::CausalConv& op) {
  return round_up(op.taps * int64_t{sizeof(float*)}, kLine);
}

void run_op(const Context& c, const Worker& w, const plan::DeltaRule& op) {
  run_recurrence(c, w, op);
}
void run_op(const Context& c, const Worker& w, const plan::SsmScan& op) {
  run_recurrence(c, w, op);
}

void run_op(const Context& c, const Worker& w, const plan::CausalConv& op) {
  const plan::Pass& pass = *c.pass;
  const Convolution conv(c, w, op);
  const int64_t n_own = conv.own.end - conv.own.begin;
  if (n_own <= 0) return;
  const float* columns = c.weight(op.weight).columns;
  const float* bias = c.vector(op.bias);
  auto* taps = reinterpret_cast<const float**>(w.scratch);
  for (size_t s = 0; s < pass.views.size(); ++s) {
    const plan::SequenceView& view = pass.views[s];
    conv.replay(c, view.state_slot, view.replay);
    const SequenceRows& rows = c.sequence_rows[s];
    float* past = conv.past(c, view.state_slot);
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      find_taps(c, conv, rows, row, past, taps);
      for (int64_t tap = 0; tap < op.taps; ++tap)
        taps[tap] += conv.own.begin;
      float* out = c.f32(op.out) + row * conv.width + conv.own.begin;
      c.kernels->convolve({.x = taps,
                           .w = columns + conv.own.begin,
                           .w_stride = conv.width,
                           .taps = op.taps,
                           .bias = bias != nullptr ? bias + conv.own.begin : nullptr,
                           .out = out,
                           .n = n_own});
      if (op.activation != plan::Activation::identity)
        c.kernels->activate(kernel_function(op.activation), out, out, n_own);
    }
    if (pass.phase == plan::Phase::prefill) {
      const float* first = c.f32(op.in) + rows.begin * conv.width;
      conv.push(past, rows.end - rows.begin, [&](int64_t i) { return first + i * conv.width; });
    }
  }
  if (pass.phase == plan::Phase::prefill) return;
  // Only this thread reads these channels of the tape, and it has replayed all sequences.
  for (int32_t row = 0; row < pass.n_rows(); ++row)
    std::memcpy(conv.tape(c, row) + conv.own.begin,
                c.f32(op.in) + row * conv.width + conv.own.begin,
                static_cast<size_t>(n_own) * sizeof(float));
}

void replay_op(const Context& c, const Worker& w, const plan::CausalConv& op, int32_t state_slot,
               std::span<const int32_t> tape_rows) {
  Convolution(c, w, op).replay(c, state_slot, tape_rows);
}
void replay_op(const Context& c, const Worker& w, const plan::DeltaRule& op, int32_t state_slot,
               std::span<const int32_t> tape_rows) {
  replay_recurrence(c, w, op, state_slot, tape_rows);
}
void replay_op(const Context& c, const Worker& w, const plan::SsmScan& op, int32_t state_slot,
               std::span<const int32_t> tape_rows) {
  replay_recurrence(c, w, op, state_slot, tape_rows);
}

}  // namespace kapitsa::backend::cpu
