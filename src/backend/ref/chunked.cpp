// The chunk forms of the recurrences, by their formulas and in double precision: what the chunk
// kernels of other backends compute, beside the steps of recurrent.cpp that define them. The
// reference uses them for prompts when it is opened with "chunked".
#include "backend/ref/run.h"

#include <algorithm>
#include <cmath>

namespace kapitsa::backend::ref {
namespace {

using Row = std::span<double>;

// One head's tokens: at most a grid of them.
struct Chunk {
  std::vector<Row> k, q, v, out;
  std::vector<double> log_decay, strength;
  bool reads = false;  // the gated delta rule; otherwise Mamba-2
  double skip = 0.0;

  size_t size() const { return k.size(); }
};

// Yang et al., arXiv 2412.06464, section 3; Dao and Gu, arXiv 2405.21060, section 6. G_i is the sum
// of the logarithms up to token i, S the state before the chunk, row(e) its row of value element e:
//   D_i = strength_i (v_i - exp(G_i) S k_i) - sum over j < i of strength_i exp(G_i - G_j) (k_i.k_j)
//         D_j, or strength_i v_i for Mamba-2;
//   out_i = exp(G_i) S q_i + sum over j <= i of exp(G_i - G_j) (q_i.k_j) D_j + skip v_i;
//   S' = exp(G_n) S + sum over i of exp(G_n - G_i) D_i k_i^T.
template <typename StateRow>
void run_chunk(const Chunk& c, StateRow row) {
  const size_t n = c.size();
  std::vector<double> sum(n);
  for (size_t i = 0; i < n; ++i)
    sum[i] = (i > 0 ? sum[i - 1] : 0.0) + c.log_decay[i];
  for (size_t e = 0; e < c.v[0].size(); ++e) {
    const Row state = row(e);
    std::vector<double> delta(n);
    for (size_t i = 0; i < n; ++i) {
      const double growth = std::exp(sum[i]);
      delta[i] = c.strength[i] * (c.v[i][e] - (c.reads ? growth * dot(state, c.k[i]) : 0.0));
      double out = growth * dot(state, c.q[i]) + c.skip * c.v[i][e];
      for (size_t j = 0; j < i; ++j) {
        const double decay = std::exp(sum[i] - sum[j]);
        if (c.reads) delta[i] -= c.strength[i] * decay * dot(c.k[i], c.k[j]) * delta[j];
        out += decay * dot(c.q[i], c.k[j]) * delta[j];
      }
      c.out[i][e] = out + dot(c.q[i], c.k[i]) * delta[i];
    }
    for (size_t j = 0; j < state.size(); ++j) {
      state[j] *= std::exp(sum[n - 1]);
      for (size_t i = 0; i < n; ++i)
        state[j] += std::exp(sum[n - 1] - sum[i]) * delta[i] * c.k[i][j];
    }
  }
}

// f(first row, end, state slot) for the chunks of every sequence of the pass.
template <typename F>
void for_each_chunk(const Run& run, F f) {
  for (int32_t first = 0; first < run.pass.n_rows();) {
    const int32_t sequence = run.pass.sequences[static_cast<size_t>(first)];
    int32_t end = first;
    while (end < run.pass.n_rows() && end < first + plan::kGrid &&
           run.pass.sequences[static_cast<size_t>(end)] == sequence)
      ++end;
    f(first, end, run.view(first).state_slot);
    first = end;
  }
}

}  // namespace

void run_chunks(Run& run, const plan::DeltaRule& op) {
  for_each_chunk(run, [&](int32_t first, int32_t end, int32_t slot) {
    for (int32_t h = 0; h < op.v.count; ++h) {
      const int32_t key_head =
          op.head_map == plan::HeadMap::tiled ? h % op.k.count : h / (op.v.count / op.k.count);
      Chunk c;
      c.reads = true;
      for (int32_t r = first; r < end; ++r) {
        c.k.push_back(run.head(op.k, r, key_head));
        c.q.push_back(run.head(op.q, r, key_head));
        c.v.push_back(run.head(op.v, r, h));
        c.out.push_back(run.head(op.out, r, h));
        c.log_decay.push_back(run.row(op.decay, r)[static_cast<size_t>(h)]);
        c.strength.push_back(run.row(op.beta, r)[static_cast<size_t>(h)]);
      }
      const Row state = run.state(op.memory.state).entry(slot);
      run_chunk(c, [&](size_t e) {
        const auto dk = static_cast<size_t>(op.k.dim);
        return state.subspan((static_cast<size_t>(h * op.v.dim) + e) * dk, dk);
      });
    }
  });
}

void run_chunks(Run& run, const plan::SsmScan& op) {
  const std::vector<double> a = weight_row(run.plan.weight(op.a), 0, 0);
  const std::vector<double> d = weight_row(run.plan.weight(op.d), 0, 0);
  for_each_chunk(run, [&](int32_t first, int32_t end, int32_t slot) {
    for (int32_t h = 0; h < op.x.count; ++h) {
      const auto head = static_cast<size_t>(h);
      const int32_t group = h / (op.x.count / op.b.count);
      Chunk c;
      c.skip = d[head];
      for (int32_t r = first; r < end; ++r) {
        c.k.push_back(run.head(op.b, r, group));
        c.q.push_back(run.head(op.c, r, group));
        c.v.push_back(run.head(op.x, r, h));
        c.out.push_back(run.head(op.out, r, h));
        const double dt = run.row(op.dt, r)[head];
        c.log_decay.push_back(a[head] * dt);
        c.strength.push_back(dt);
      }
      const Row state = run.state(op.memory.state).entry(slot);
      run_chunk(c, [&](size_t e) {
        const auto n = static_cast<size_t>(op.b.dim);
        return state.subspan((static_cast<size_t>(h * op.x.dim) + e) * n, n);
      });
    }
  });
}

}  // namespace kapitsa::backend::ref
