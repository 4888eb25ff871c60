// Layers with a state per sequence: causal convolution, and the two recurrences that add an outer
// product to a decaying state. A prompt is stepped through token by token, as decoding does: on a
// CPU the chunk form has as many multiply-adds (3 dk dv + 2 * 64 (dk + dv) against 4 dk dv for each
// token), and a block of the state stays in the first-level cache meanwhile. So a row's bits depend
// neither on the cuts of a prompt nor on the phase (invariants 1 and 4).
//
// A row of a decode pass leaves the state alone and writes what would change it to the tape; replay
// applies tape rows to the state with the same instructions (invariant 3).
#include "backend/cpu/ops.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

// ---- S <- decay S + delta k^T ----

// The gated delta rule and Mamba-2 in the same terms. State: (heads, tiles of 16 value elements,
// keys, 16). Tape: [k (n_k, dk) | delta (n_v, dv) | decay (n_v)].
struct Recurrence {
  int64_t n_v = 1, dv = 1, n_k = 1, dk = 1;
  bool tiled = false;  // HeadMap
  plan::Recurrent memory;

  int64_t n_tiles() const { return (dv + kStateLanes - 1) / kStateLanes; }
  int64_t tile_floats() const { return dk * kStateLanes; }
  int64_t key_head(int64_t head) const { return tiled ? head % n_k : head / (n_v / n_k); }
  // The value head that writes its key head to the tape.
  bool leads(int64_t head) const { return tiled ? head < n_k : head % (n_v / n_k) == 0; }
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

  float decay(int64_t at, int64_t head) const {
    return std::exp(a != nullptr ? a[head] * g[at] : g[at]);
  }
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
TapeRow tape_row(const Context& c, const Recurrence& r, int64_t row) {
  const StateView& tape = c.state(r.memory.tape);
  auto* k = reinterpret_cast<float*>(tape.data + row * tape.entry_bytes);
  float* delta = k + r.n_k * r.dk;
  return {k, delta, delta + r.n_v * r.dv};
}

float* tile_of(const Context& c, const Recurrence& r, int64_t slot, int64_t head, int64_t tile) {
  const StateView& state = c.state(r.memory.state);
  return reinterpret_cast<float*>(state.data + slot * state.entry_bytes) +
         (head * r.n_tiles() + tile) * r.tile_floats();
}

void replay_head(const Context& c, const Recurrence& r, int64_t slot, int64_t head,
                 std::span<const int32_t> tape_rows) {
  for (int64_t tile = 0; tile < r.n_tiles(); ++tile) {
    float* state = tile_of(c, r, slot, head, tile);
    for (const int32_t row : tape_rows) {
      const TapeRow tape = tape_row(c, r, row);
      c.kernels->advance_state(state, r.dk, r.lanes(tile), tape.k + r.key_head(head) * r.dk,
                               tape.decay[head], tape.delta + head * r.dv + tile * kStateLanes);
    }
  }
}

// What a thread keeps.
struct Scratch {
  float* decay;        // (rows) of a sequence, for one head
  float* kq;           // (rows)
  uint8_t* is_parent;  // (rows of the pass)
  float* states;       // (tape rows, tile): after a row of the tree
};
int64_t scratch_size(const Recurrence& r, const ProgramLimits& limits, std::byte* base,
                     Scratch* scratch) {
  int64_t size = 0;
  const auto take = [&](int64_t bytes) {
    std::byte* from = base == nullptr ? nullptr : base + size;
    size += round_up(bytes, kLine);
    return from;
  };
  Scratch s = {};
  s.decay = reinterpret_cast<float*>(take(limits.max_rows * 4));
  s.kq = reinterpret_cast<float*>(take(limits.max_rows * 4));
  s.is_parent = reinterpret_cast<uint8_t*>(take(limits.max_rows));
  s.states = reinterpret_cast<float*>(take(limits.n_tape_rows * r.tile_floats() * 4));
  if (scratch != nullptr) *scratch = s;
  return size;
}

class Stepping {
public:
  Stepping(const Context& c, const Worker& w, const Recurrence& r, const Drive& drive)
      : c_(c), r_(r), d_(drive), decodes_(c.pass->phase == plan::Phase::decode) {
    scratch_size(r, c.limits, w.scratch, &s_);
    if (!decodes_) return;
    const int32_t n = c.pass->n_rows();
    std::memset(s_.is_parent, 0, static_cast<size_t>(n));
    for (int32_t row = 0; row < n; ++row) {
      if (const int32_t parent = c.pass->parent(row); parent >= 0) s_.is_parent[parent] = 1;
    }
  }

  // All rows of a sequence for one value head.
  void run(const SequenceRows& rows, int64_t slot, int64_t head) const {
    const int64_t key_head = r_.key_head(head);
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      const int32_t i = row - rows.begin;
      const float* k = d_.k.at(row, key_head);
      s_.decay[i] = d_.decay(row * r_.n_v + head, head);
      s_.kq[i] = c_.kernels->dot(k, d_.q.at(row, key_head), Plain::f32, r_.dk);
      if (!decodes_) continue;
      const TapeRow tape = tape_row(c_, r_, row);
      tape.decay[head] = s_.decay[i];
      if (r_.leads(head)) std::copy_n(k, r_.dk, tape.k + key_head * r_.dk);
    }
    for (int64_t tile = 0; tile < r_.n_tiles(); ++tile) {
      float* committed = tile_of(c_, r_, slot, head, tile);
      for (int32_t row = rows.begin; row < rows.end; ++row)
        step(rows, row, head, tile, committed);
    }
  }

private:
  void step(const SequenceRows& rows, int32_t row, int64_t head, int64_t tile,
            float* committed) const {
    const int64_t first = tile * kStateLanes;
    const int64_t at = row * r_.n_v + head;
    float unused[kStateLanes];
    StateStep args = {.state = committed,
                      .next = committed,
                      .n = r_.dk,
                      .n_lanes = r_.lanes(tile),
                      .k = d_.k.at(row, r_.key_head(head)),
                      .q = d_.q.at(row, r_.key_head(head)),
                      .kq = s_.kq[row - rows.begin],
                      .decay = s_.decay[row - rows.begin],
                      .strength = d_.strength[at],
                      .skip = d_.skip != nullptr ? d_.skip[head] : 0.0F,
                      .reads = d_.reads,
                      .v = d_.v.at(row, head) + first,
                      .delta = unused,
                      .out = d_.out.at(row, head) + first};
    if (decodes_) {
      const auto after = [&](int32_t of) {
        return s_.states + (of - rows.begin) * r_.tile_floats();
      };
      const int32_t parent = c_.pass->parent(row);
      if (parent >= 0) args.state = after(parent);
      args.next = s_.is_parent[row] != 0 ? after(row) : nullptr;
      args.delta = tape_row(c_, r_, row).delta + head * r_.dv + first;
    }
    c_.kernels->step_state(args);
  }

  const Context& c_;
  const Recurrence& r_;
  const Drive& d_;
  bool decodes_;
  Scratch s_ = {};
};

// Threads share (sequence, value head); the replay of a head comes right before its rows, while its
// state is in the cache. The tape is written when all threads have replayed.
template <typename Op>
void run_recurrence(const Context& c, const Worker& w, const Op& op) {
  const plan::Pass& pass = *c.pass;
  const Recurrence r = recurrence_of(op);
  const Range own = partition(std::ssize(pass.views) * r.n_v, w.thread, w.n_threads);
  bool replays = false;
  for (const plan::SequenceView& view : pass.views)
    replays = replays || !view.replay.empty();
  if (replays) {
    for (int64_t item = own.begin; item < own.end; ++item) {
      const plan::SequenceView& view = pass.views[static_cast<size_t>(item / r.n_v)];
      replay_head(c, r, view.state_slot, item % r.n_v, view.replay);
    }
    c.pool->barrier();
  }
  const Drive drive = drive_of(c, op);
  const Stepping stepping(c, w, r, drive);
  for (int64_t item = own.begin; item < own.end; ++item) {
    const auto sequence = static_cast<size_t>(item / r.n_v);
    stepping.run(c.sequence_rows[sequence], pass.views[sequence].state_slot, item % r.n_v);
  }
}

template <typename Op>
void replay_recurrence(const Context& c, const Worker& w, const Op& op, int32_t slot,
                       std::span<const int32_t> tape_rows) {
  const Recurrence r = recurrence_of(op);
  const Range own = partition(r.n_v, w.thread, w.n_threads);
  for (int64_t head = own.begin; head < own.end; ++head)
    replay_head(c, r, slot, head, tape_rows);
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

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::DeltaRule& op) {
  return scratch_size(recurrence_of(op), limits, nullptr, nullptr);
}
int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::SsmScan& op) {
  return scratch_size(recurrence_of(op), limits, nullptr, nullptr);
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
