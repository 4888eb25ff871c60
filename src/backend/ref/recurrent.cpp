// Layers with a state per sequence. Each is three steps on one state: what the row would change
// (its tape row), the change itself, and what the row reads. Prefill applies the change to the
// committed state; decode applies it to a copy of the parent's state, and the replay of an
// accepted path later applies the same tape rows to the committed state.
#include "backend/ref/run.h"

#include <algorithm>
#include <cmath>

namespace kapitsa::backend::ref {
namespace {

using State = std::span<double>;
using Tape = std::span<double>;

// step(row, state, tape) computes the row, fills its tape row and advances the state.
template <typename Step>
void walk_rows(Run& run, const plan::Recurrent& memory, Step step) {
  StateData& committed = run.state(memory.state);
  StateData& tape = run.state(memory.tape);
  std::vector<double> unused(static_cast<size_t>(tape.width));
  std::vector<std::vector<double>> after(static_cast<size_t>(run.pass.n_rows()));
  for (int32_t r = 0; r < run.pass.n_rows(); ++r) {
    const State start = committed.entry(run.view(r).state_slot);
    if (run.pass.phase == plan::Phase::prefill) {
      step(r, start, Tape(unused));
      continue;
    }
    const int32_t parent = run.pass.parent(r);
    std::vector<double>& state = after[static_cast<size_t>(r)];
    if (parent < 0) {
      state.assign(start.begin(), start.end());
    } else {
      state = after[static_cast<size_t>(parent)];
    }
    step(r, State(state), tape.entry(r));
  }
}

// State: the last n inputs of `width`, oldest first. Tape: the input.
void advance_conv(State state, Tape tape) {
  std::copy(state.begin() + std::ssize(tape), state.end(), state.begin());
  std::copy(tape.begin(), tape.end(), state.end() - std::ssize(tape));
}

int32_t key_head(const plan::DeltaRule& op, int32_t h) {
  return op.head_map == plan::HeadMap::tiled ? h % op.k.count : h / (op.v.count / op.k.count);
}

// Tape: [k (n_k, dk) | delta (n_v, dv) | g (n_v)]. State: (n_v, dv, dk).
struct DeltaTape {
  const plan::DeltaRule& op;
  Tape tape;
  std::span<double> k(int32_t head) const {
    return tape.subspan(static_cast<size_t>(head * op.k.dim), static_cast<size_t>(op.k.dim));
  }
  std::span<double> delta(int32_t head) const {
    return tape.subspan(static_cast<size_t>(op.k.count * op.k.dim + head * op.v.dim),
                        static_cast<size_t>(op.v.dim));
  }
  double& g(int32_t head) const {
    return tape[static_cast<size_t>(op.k.count * op.k.dim + op.v.count * op.v.dim + head)];
  }
  // Row i of the state of a value head: (dk).
  State row(State state, int32_t head, int32_t i) const {
    return state.subspan(static_cast<size_t>((head * op.v.dim + i) * op.k.dim),
                         static_cast<size_t>(op.k.dim));
  }
};

void advance_delta(const plan::DeltaRule& op, State state, Tape tape) {
  const DeltaTape view = {op, tape};
  for (int32_t h = 0; h < op.v.count; ++h) {
    const double decay = std::exp(view.g(h));
    const auto k = view.k(key_head(op, h));
    for (int32_t i = 0; i < op.v.dim; ++i) {
      const State row = view.row(state, h, i);
      const double delta = view.delta(h)[static_cast<size_t>(i)];
      for (size_t j = 0; j < row.size(); ++j)
        row[j] = decay * row[j] + delta * k[j];
    }
  }
}

// Tape: [x (heads, p) | dt (heads) | B (groups, n)]. State: (heads, p, n).
struct SsmTape {
  const plan::SsmScan& op;
  Tape tape;
  std::span<double> x(int32_t head) const {
    return tape.subspan(static_cast<size_t>(head * op.x.dim), static_cast<size_t>(op.x.dim));
  }
  double& dt(int32_t head) const { return tape[static_cast<size_t>(op.x.count * op.x.dim + head)]; }
  std::span<double> b(int32_t group) const {
    return tape.subspan(static_cast<size_t>(op.x.count * (op.x.dim + 1) + group * op.b.dim),
                        static_cast<size_t>(op.b.dim));
  }
  State row(State state, int32_t head, int32_t i) const {
    return state.subspan(static_cast<size_t>((head * op.x.dim + i) * op.b.dim),
                         static_cast<size_t>(op.b.dim));
  }
};

int32_t group_of(const plan::SsmScan& op, int32_t h) {
  return h / (op.x.count / op.b.count);
}

void advance_ssm(const plan::Plan& plan, const plan::SsmScan& op, State state, Tape tape) {
  const SsmTape view = {op, tape};
  const std::vector<double> a = weight_row(plan.weight(op.a), 0, 0);
  for (int32_t h = 0; h < op.x.count; ++h) {
    const double dt = view.dt(h);
    const double decay = std::exp(dt * a[static_cast<size_t>(h)]);
    const auto b = view.b(group_of(op, h));
    for (int32_t i = 0; i < op.x.dim; ++i) {
      const State row = view.row(state, h, i);
      const double input = dt * view.x(h)[static_cast<size_t>(i)];
      for (size_t j = 0; j < row.size(); ++j)
        row[j] = decay * row[j] + input * b[j];
    }
  }
}

}  // namespace

void run_op(Run& run, const plan::CausalConv& op) {
  const auto width = static_cast<size_t>(run.width(op.in));
  const std::vector<double> bias = vector_or(run.plan, op.bias, run.width(op.in), 0.0);
  std::vector<std::vector<double>> weight;  // (width, taps)
  for (size_t c = 0; c < width; ++c)
    weight.push_back(weight_row(run.plan.weight(op.weight), 0, static_cast<int64_t>(c)));
  walk_rows(run, op.memory, [&](int32_t r, State state, Tape tape) {
    std::ranges::copy(run.row(op.in, r), tape.begin());
    const auto out = run.row(op.out, r);
    for (size_t c = 0; c < width; ++c) {
      double sum = bias[c];
      for (int32_t j = 0; j < op.taps - 1; ++j)
        sum += weight[c][static_cast<size_t>(j)] *
               state[static_cast<size_t>(j * op.dilation) * width + c];
      sum += weight[c][static_cast<size_t>(op.taps - 1)] * tape[c];
      out[c] = activate(op.activation, sum);
    }
    advance_conv(state, tape);
  });
}

void run_op(Run& run, const plan::DeltaRule& op) {
  if (run.chunked && run.pass.phase == plan::Phase::prefill) return run_chunks(run, op);
  walk_rows(run, op.memory, [&](int32_t r, State state, Tape tape) {
    const DeltaTape view = {op, tape};
    for (int32_t h = 0; h < op.k.count; ++h)
      std::ranges::copy(run.head(op.k, r, h), view.k(h).begin());
    for (int32_t h = 0; h < op.v.count; ++h) {
      view.g(h) = run.row(op.decay, r)[static_cast<size_t>(h)];
      const double beta = run.row(op.beta, r)[static_cast<size_t>(h)];
      const auto k = view.k(key_head(op, h));
      const auto v = run.head(op.v, r, h);
      for (int32_t i = 0; i < op.v.dim; ++i) {
        const auto e = static_cast<size_t>(i);
        view.delta(h)[e] = beta * (v[e] - std::exp(view.g(h)) * dot(view.row(state, h, i), k));
      }
    }
    advance_delta(op, state, tape);
    for (int32_t h = 0; h < op.v.count; ++h) {
      const auto q = run.head(op.q, r, key_head(op, h));
      const auto out = run.head(op.out, r, h);
      for (int32_t i = 0; i < op.v.dim; ++i)
        out[static_cast<size_t>(i)] = dot(view.row(state, h, i), q);
    }
  });
}

void run_op(Run& run, const plan::SsmScan& op) {
  if (run.chunked && run.pass.phase == plan::Phase::prefill) return run_chunks(run, op);
  const std::vector<double> d = weight_row(run.plan.weight(op.d), 0, 0);
  walk_rows(run, op.memory, [&](int32_t r, State state, Tape tape) {
    const SsmTape view = {op, tape};
    for (int32_t h = 0; h < op.x.count; ++h) {
      std::ranges::copy(run.head(op.x, r, h), view.x(h).begin());
      view.dt(h) = run.row(op.dt, r)[static_cast<size_t>(h)];
    }
    for (int32_t g = 0; g < op.b.count; ++g)
      std::ranges::copy(run.head(op.b, r, g), view.b(g).begin());
    advance_ssm(run.plan, op, state, tape);
    for (int32_t h = 0; h < op.x.count; ++h) {
      const auto c = run.head(op.c, r, group_of(op, h));
      const auto out = run.head(op.out, r, h);
      for (int32_t i = 0; i < op.x.dim; ++i) {
        const auto e = static_cast<size_t>(i);
        out[e] = dot(view.row(state, h, i), c) + d[static_cast<size_t>(h)] * view.x(h)[e];
      }
    }
  });
}

bool replay_op(const plan::Plan& plan, std::vector<StateData>& states, const plan::Op& op,
               int32_t tape_row, int32_t state_slot) {
  const auto at = [&](const plan::Recurrent& memory) {
    return std::pair(states[static_cast<size_t>(memory.state.index)].entry(state_slot),
                     states[static_cast<size_t>(memory.tape.index)].entry(tape_row));
  };
  if (const auto* conv = std::get_if<plan::CausalConv>(&op)) {
    const auto [state, tape] = at(conv->memory);
    advance_conv(state, tape);
  } else if (const auto* delta = std::get_if<plan::DeltaRule>(&op)) {
    const auto [state, tape] = at(delta->memory);
    advance_delta(*delta, state, tape);
  } else if (const auto* ssm = std::get_if<plan::SsmScan>(&op)) {
    const auto [state, tape] = at(ssm->memory);
    advance_ssm(plan, *ssm, state, tape);
  } else {
    return false;
  }
  return true;
}

}  // namespace kapitsa::backend::ref
