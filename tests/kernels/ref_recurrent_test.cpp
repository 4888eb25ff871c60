// The reference's recurrent layers against closed forms written here: orthonormal keys, the chunk
// and tree forms of the gated delta rule and of Mamba-2, limits, and paths through trees.
#include "support/plan_builder.h"
#include "support/plan_runner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kapitsa::test {
namespace {

using plan::BufferId;
using Matrix = std::vector<std::vector<double>>;

constexpr double kF32 = 4e-7;  // what read() rounds to, at values about 1

PlanRunner open(const PlanBuilder& builder, int32_t max_tokens = 256) {
  static const auto device = backend::open_device("ref", {});
  RunnerOptions options;
  options.max_tokens = max_tokens;
  auto runner = PlanRunner::open(**device, builder.plan, options);
  KAPITSA_CHECK(runner.ok(), runner ? "" : runner.error().message.c_str());
  return std::move(*runner);
}

// `n` random rows of `width` in [low, high]; rows are also given as a flat f32 table.
struct Table {
  std::vector<float> flat;
  Matrix rows;
};
Table table(Random& random, size_t n, size_t width, float low = -1.0F, float high = 1.0F) {
  Table result;
  for (size_t r = 0; r < n; ++r) {
    result.rows.emplace_back();
    for (size_t i = 0; i < width; ++i) {
      result.flat.push_back(random.uniform(low, high));
      result.rows.back().push_back(static_cast<double>(result.flat.back()));
    }
  }
  return result;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

std::vector<int32_t> iota(int32_t first, int32_t n) {
  std::vector<int32_t> result;
  for (int32_t i = 0; i < n; ++i)
    result.push_back(first + i);
  return result;
}

// Rows of a random tree: parents come before children, some rows hang off the committed state.
std::vector<int32_t> random_tree(Random& random, int32_t n) {
  std::vector<int32_t> parents;
  for (int32_t i = 0; i < n; ++i)
    parents.push_back(random.below(i + 1) - 1);
  return parents;
}

// One head of the gated delta rule whose row t reads line t of these tables.
struct Delta {
  static constexpr size_t kDk = 6, kDv = 5;
  Table q, k, v, g, beta;
  PlanBuilder builder{11};
  BufferId out;

  explicit Delta(size_t n) {
    Random random(5);
    q = table(random, n, kDk);
    k = table(random, n, kDk, -0.6F, 0.6F);
    v = table(random, n, kDv);
    g = table(random, n, 1, -0.4F, 0.0F);
    beta = table(random, n, 1, 0.0F, 1.0F);
  }
  PlanRunner open_runner() {
    PlanBuilder& b = builder;
    const auto heads = [&](const Table& values, int64_t width) {
      return b.plan.heads(b.input_of(values.flat, width));
    };
    out = b.output(kDv);
    const plan::Heads query = heads(q, kDk);
    const plan::Heads key = heads(k, kDk);
    const plan::Heads value = heads(v, kDv);
    const BufferId decay = b.input_of(g.flat, 1);
    const BufferId strength = b.input_of(beta.flat, 1);
    b.op(plan::DeltaRule{query, key, value, decay, strength, plan::HeadMap::grouped,
                         b.memory(kDv * kDk, kDk + kDv + 1), b.plan.heads(out)});
    return open(b);
  }

  // The closed form of rows `first + i` on a tree over the state S0
  // (dk, dv): outputs, and the state after the path to row `commit`.
  struct Closed {
    Matrix out;
    Matrix state;
  };
  Closed closed(size_t first, const std::vector<int32_t>& parents, const Matrix& s0,
                size_t commit) const {
    const size_t n = parents.size();
    Matrix w(n, std::vector<double>(n, 0.0));  // path decay from j to i, 0 for a non-ancestor
    std::vector<double> decay(n, 0.0);
    for (size_t i = 0; i < n; ++i) {
      double since = 0.0;
      for (int32_t a = static_cast<int32_t>(i); a >= 0; a = parents[static_cast<size_t>(a)]) {
        w[i][static_cast<size_t>(a)] = std::exp(since);
        since += g.rows[first + static_cast<size_t>(a)][0];
      }
      decay[i] = std::exp(since);
    }
    Closed result = {Matrix(n, std::vector<double>(kDv, 0.0)), s0};
    Matrix d(n, std::vector<double>(kDv, 0.0));
    for (size_t i = 0; i < n; ++i) {
      for (size_t e = 0; e < kDv; ++e) {
        double read = 0.0;
        double write = 0.0;
        for (size_t c = 0; c < kDk; ++c) {
          read += decay[i] * s0[c][e] * q.rows[first + i][c];
          write += decay[i] * s0[c][e] * k.rows[first + i][c];
        }
        for (size_t j = 0; j < i; ++j)
          write += w[i][j] * dot(k.rows[first + i], k.rows[first + j]) * d[j][e];
        d[i][e] = beta.rows[first + i][0] * (v.rows[first + i][e] - write);
        for (size_t j = 0; j <= i; ++j)
          read += w[i][j] * dot(q.rows[first + i], k.rows[first + j]) * d[j][e];
        result.out[i][e] = read;
      }
    }
    for (size_t c = 0; c < kDk; ++c) {
      for (size_t e = 0; e < kDv; ++e) {
        result.state[c][e] *= decay[commit];
        for (size_t j = 0; j < n; ++j)
          result.state[c][e] += w[commit][j] * k.rows[first + j][c] * d[j][e];
      }
    }
    return result;
  }
};

void expect_rows(const std::vector<float>& found, const Matrix& expected, double tolerance) {
  const size_t width = expected[0].size();
  ASSERT_EQ(found.size(), expected.size() * width);
  for (size_t r = 0; r < expected.size(); ++r) {
    for (size_t i = 0; i < width; ++i)
      ASSERT_NEAR(found[r * width + i], expected[r][i], tolerance) << "row " << r << " of " << i;
  }
}

const Matrix kNoDeltaState(Delta::kDk, std::vector<double>(Delta::kDv, 0.0));

TEST(RefDelta, OrthonormalKeysReadBackTheirLastValue) {
  Delta delta(6);
  // Keys e0 e1 e2 e0, each with its own value; every row reads the key that it has just written.
  const int keys[] = {0, 1, 2, 0, 1, 2};
  std::fill(delta.k.flat.begin(), delta.k.flat.end(), 0.0F);
  for (size_t t = 0; t < 6; ++t) {
    delta.k.flat[t * Delta::kDk + static_cast<size_t>(keys[t])] = 1.0F;
    delta.g.flat[t] = 0.0F;
    delta.beta.flat[t] = 1.0F;
  }
  delta.q.flat = delta.k.flat;
  delta.q.flat[4 * Delta::kDk + 1] = 0.0F;  // row 4 writes e1 and reads e0, last written by row 3
  delta.q.flat[4 * Delta::kDk + 0] = 1.0F;
  PlanRunner runner = delta.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 6)));
  Matrix expected = delta.v.rows;
  expected[4] = delta.v.rows[3];
  expect_rows(runner.read(delta.out).value(), expected, kF32);
}

TEST(RefDelta, PrefillEqualsTheChunkFormula) {
  Delta delta(128);
  PlanRunner runner = delta.open_runner();
  std::vector<int32_t> chain = iota(-1, 64);
  ASSERT_TRUE(runner.prefill(0, iota(0, 64)));
  const Delta::Closed first = delta.closed(0, chain, kNoDeltaState, 63);
  expect_rows(runner.read(delta.out).value(), first.out, kF32);
  ASSERT_TRUE(runner.prefill(0, iota(64, 64)));
  const Delta::Closed second = delta.closed(64, chain, first.state, 63);
  expect_rows(runner.read(delta.out).value(), second.out, kF32);
}

TEST(RefDelta, RandomTreesEqualTheClosedFormAndCommitTheirPath) {
  Random random(3);
  for (int trial = 0; trial < 20; ++trial) {
    Delta delta(60);
    PlanRunner runner = delta.open_runner();
    ASSERT_TRUE(runner.prefill(0, iota(0, 10)));
    const Matrix s0 = delta.closed(0, iota(-1, 10), kNoDeltaState, 9).state;
    const std::vector<int32_t> parents = random_tree(random, 12);
    ASSERT_TRUE(runner.decode({{0, iota(10, 12), parents}}));
    std::vector<int32_t> path;
    for (int32_t a = 11; a >= 0; a = parents[static_cast<size_t>(a)])
      path.insert(path.begin(), a);
    const Delta::Closed tree = delta.closed(10, parents, s0, 11);
    expect_rows(runner.read(delta.out).value(), tree.out, kF32);
    ASSERT_TRUE(runner.accept(0, path, trial % 2 == 0));
    ASSERT_TRUE(runner.decode({{0, {40}, {}}}));
    expect_rows(runner.read(delta.out).value(), delta.closed(40, {-1}, tree.state, 0).out, kF32);
  }
}

TEST(RefDelta, HeadMapsChooseTheKeyHead) {
  for (const auto map : {plan::HeadMap::grouped, plan::HeadMap::tiled}) {
    PlanBuilder b(1);
    // Two key heads of one element, 1 and 2; four value heads of 1; delta = v, out = v k q.
    const std::vector<float> key = {1.0F, 2.0F};
    const std::vector<float> ones = {1.0F, 1.0F, 1.0F, 1.0F};
    const std::vector<float> zeros = {0.0F, 0.0F, 0.0F, 0.0F};
    const plan::Heads k = b.plan.heads(b.input_of(key, 2), 2);
    const plan::Heads v = b.plan.heads(b.input_of(ones, 4), 4);
    const BufferId out = b.output(4);
    const BufferId decay = b.input_of(zeros, 4);
    const BufferId beta = b.input_of(ones, 4);
    b.op(plan::DeltaRule{k, k, v, decay, beta, map, b.memory(4, 2 + 8), b.plan.heads(out, 4)});
    PlanRunner runner = open(b);
    ASSERT_TRUE(runner.prefill(0, iota(0, 1)));
    const std::vector<float> grouped = {1.0F, 1.0F, 4.0F, 4.0F};
    const std::vector<float> tiled = {1.0F, 4.0F, 1.0F, 4.0F};
    EXPECT_EQ(runner.read(out).value(), map == plan::HeadMap::grouped ? grouped : tiled);
  }
}

// One Mamba-2 head whose row t reads line t.
struct Ssm {
  static constexpr size_t kP = 3, kN = 4;
  Table x, dt, b, c;
  double a, d = 0.75;
  PlanBuilder builder{13};
  BufferId out;

  Ssm(size_t n, double a_value) : a(a_value) {
    Random random(9);
    x = table(random, n, kP);
    dt = table(random, n, 1, 0.1F, 1.0F);
    b = table(random, n, kN);
    c = table(random, n, kN);
  }
  PlanRunner open_runner() {
    PlanBuilder& p = builder;
    const auto heads = [&](const Table& values, int64_t width) {
      return p.plan.heads(p.input_of(values.flat, width));
    };
    out = p.output(kP);
    const float a_value = static_cast<float>(a);
    const float d_value = static_cast<float>(d);
    p.op(plan::SsmScan{.x = heads(x, kP),
                       .dt = p.input_of(dt.flat, 1),
                       .b = heads(b, kN),
                       .c = heads(c, kN),
                       .a = p.weight_of(std::span(&a_value, 1), 1, 1),
                       .d = p.weight_of(std::span(&d_value, 1), 1, 1),
                       .memory = p.memory(kP * kN, kP + 1 + kN),
                       .out = p.plan.heads(out)});
    return open(p);
  }
  // Row `row` at the end of a path of earlier rows, from no state.
  std::vector<double> closed(const std::vector<size_t>& path) const {
    const size_t t = path.back();
    std::vector<double> y(kP);
    double later = 0.0;  // sum of dt after row s on the path
    for (size_t e = 0; e < kP; ++e)
      y[e] = d * x.rows[t][e];
    for (auto s = path.rbegin(); s != path.rend(); ++s) {
      const double factor = std::exp(a * later) * dot(c.rows[t], b.rows[*s]) * dt.rows[*s][0];
      for (size_t e = 0; e < kP; ++e)
        y[e] += factor * x.rows[*s][e];
      later += dt.rows[*s][0];
    }
    return y;
  }
};

TEST(RefSsm, PrefillTreeAndReplayEqualTheClosedForm) {
  Random random(17);
  for (int trial = 0; trial < 20; ++trial) {
    Ssm ssm(60, -0.5);
    PlanRunner runner = ssm.open_runner();
    ASSERT_TRUE(runner.prefill(0, iota(0, 10)));
    std::vector<size_t> path;
    Matrix expected;
    for (size_t t = 0; t < 10; ++t) {
      path.push_back(t);
      expected.push_back(ssm.closed(path));
    }
    expect_rows(runner.read(ssm.out).value(), expected, kF32);

    const std::vector<int32_t> parents = random_tree(random, 12);
    ASSERT_TRUE(runner.decode({{0, iota(10, 12), parents}}));
    expected.clear();
    std::vector<std::vector<size_t>> paths;
    for (size_t i = 0; i < 12; ++i) {
      paths.push_back(parents[i] < 0 ? path : paths[static_cast<size_t>(parents[i])]);
      paths.back().push_back(10 + i);
      expected.push_back(ssm.closed(paths.back()));
    }
    expect_rows(runner.read(ssm.out).value(), expected, kF32);

    std::vector<int32_t> accepted;
    for (size_t i = 10; i < paths[11].size(); ++i)
      accepted.push_back(static_cast<int32_t>(paths[11][i]) - 10);
    ASSERT_TRUE(runner.accept(0, accepted, trial % 2 == 0));
    ASSERT_TRUE(runner.decode({{0, {50}, {}}}));
    paths[11].push_back(50);
    expect_rows(runner.read(ssm.out).value(), {ssm.closed(paths[11])}, kF32);
  }
}

TEST(RefSsm, ForgetsEverythingWhenADecaysAtOnce) {
  Ssm ssm(8, -1e30);
  PlanRunner runner = ssm.open_runner();
  ASSERT_TRUE(runner.prefill(0, iota(0, 8)));
  Matrix expected;
  for (size_t t = 0; t < 8; ++t) {
    const double factor = ssm.dt.rows[t][0] * dot(ssm.b.rows[t], ssm.c.rows[t]);
    expected.emplace_back();
    for (const double x : ssm.x.rows[t])
      expected.back().push_back(factor * x + ssm.d * x);
  }
  expect_rows(runner.read(ssm.out).value(), expected, kF32);
}

TEST(RefConv, TapsFollowThePathOfATree) {
  Random random(21);
  const Table in = table(random, 40, 1);
  PlanBuilder b(2);
  const std::vector<float> taps = {0.5F, -1.0F, 2.0F};
  const BufferId out = b.output(1);
  b.op(plan::CausalConv{.in = b.input_of(in.flat, 1),
                        .out = out,
                        .weight = b.weight_of(taps, 1, 3),
                        .bias = {},
                        .taps = 3,
                        .dilation = 2,
                        .memory = b.memory(4, 1)});
  PlanRunner runner = open(b);
  const auto expected = [&](const std::vector<size_t>& path) {
    double sum = 0.0;
    for (size_t j = 0; j < 3; ++j) {
      const size_t back = (2 - j) * 2;
      if (path.size() > back)
        sum += static_cast<double>(taps[j]) * in.rows[path[path.size() - 1 - back]][0];
    }
    return std::vector<double>{sum};
  };
  ASSERT_TRUE(runner.prefill(0, iota(0, 3)));
  expect_rows(runner.read(out).value(), {expected({0}), expected({0, 1}), expected({0, 1, 2})},
              kF32);
  ASSERT_TRUE(runner.decode({{0, {10, 11, 12, 13}, {-1, 0, 0, 2}}}));
  expect_rows(runner.read(out).value(),
              {expected({0, 1, 2, 10}), expected({0, 1, 2, 10, 11}), expected({0, 1, 2, 10, 12}),
               expected({0, 1, 2, 10, 12, 13})},
              kF32);
  ASSERT_TRUE(runner.accept(0, {0, 2}));
  ASSERT_TRUE(runner.decode({{0, {14}, {}}}));
  expect_rows(runner.read(out).value(), {expected({0, 1, 2, 10, 12, 14})}, kF32);
}

// Attention, both recurrences and a convolution over one input.
struct Mixed {
  PlanBuilder b{31};
  std::vector<BufferId> outs;

  Mixed() {
    const plan::Heads x = b.input_heads(2, 4);
    const plan::StateId k = b.cache(8);
    const plan::StateId v = b.cache(8);
    b.op(plan::CacheAppend{x, k});
    b.op(plan::CacheAppend{x, v});
    outs = {b.output(8), b.output(8), b.output(8), b.output(8)};
    b.op(plan::Attend{
        .q = x, .k_cache = k, .v_cache = v, .n_kv_heads = 2, .out = b.plan.heads(outs[0], 2)});
    b.op(plan::DeltaRule{x, x, x, b.input(2, -0.5F, 0.0F), b.input(2, 0.0F, 0.2F),
                         plan::HeadMap::grouped, b.memory(32, 8 + 10), b.plan.heads(outs[1], 2)});
    b.op(plan::SsmScan{.x = x,
                       .dt = b.input(2, 0.1F, 1.0F),
                       .b = x,
                       .c = x,
                       .a = b.vector(2, -1.0F, -0.1F),
                       .d = b.vector(2),
                       .memory = b.memory(32, 10 + 8),
                       .out = b.plan.heads(outs[2], 2)});
    b.op(plan::CausalConv{.in = x.buffer,
                          .out = outs[3],
                          .weight = b.matrix(8, 4),
                          .bias = {},
                          .taps = 4,
                          .memory = b.memory(24, 8)});
  }
  std::vector<float> row(PlanRunner& runner, int32_t index) const {
    std::vector<float> all;
    for (const BufferId out : outs) {
      const std::vector<float> rows = runner.read(out).value();
      all.insert(all.end(), rows.begin() + index * 8, rows.begin() + (index + 1) * 8);
    }
    return all;
  }
};

TEST(RefTree, EveryRowEqualsItsPathRunAsAChain) {
  const Mixed mixed;
  Random random(41);
  for (int trial = 0; trial < 10; ++trial) {
    const std::vector<int32_t> parents = random_tree(random, 9);
    const std::vector<int32_t> tokens = {5, 9, 3, 22, 30, 41, 8, 17, 2};
    PlanRunner tree = open(mixed.b);
    ASSERT_TRUE(tree.prefill(0, iota(1, 7)));
    ASSERT_TRUE(tree.decode({{1, {4, 4}, {}}, {0, tokens, parents}}));
    for (int32_t row = 0; row < 9; ++row) {
      std::vector<int32_t> path;
      for (int32_t a = row; a >= 0; a = parents[static_cast<size_t>(a)])
        path.insert(path.begin(), tokens[static_cast<size_t>(a)]);
      PlanRunner chain = open(mixed.b);
      ASSERT_TRUE(chain.prefill(0, iota(1, 7)));
      ASSERT_TRUE(chain.decode({{0, path, {}}}));
      ASSERT_EQ(mixed.row(tree, row + 2), mixed.row(chain, static_cast<int32_t>(path.size()) - 1));
    }
  }
}

TEST(RefTree, ReplayEqualsHavingRunTheAcceptedPathTokenByToken) {
  const Mixed mixed;
  PlanRunner tree = open(mixed.b);
  ASSERT_TRUE(tree.prefill(0, iota(1, 7)));
  ASSERT_TRUE(tree.decode({{0, {5, 9, 3, 22, 30}, {-1, 0, 0, 2, 2}}}));
  ASSERT_TRUE(tree.accept(0, {0, 2, 4}));
  ASSERT_TRUE(tree.decode({{0, {6}, {}}}));

  PlanRunner plain = open(mixed.b);
  ASSERT_TRUE(plain.prefill(0, iota(1, 7)));
  for (const int32_t token : {5, 3, 30}) {
    ASSERT_TRUE(plain.decode({{0, {token}, {}}}));
    ASSERT_TRUE(plain.accept(0, {0}));
  }
  ASSERT_TRUE(plain.decode({{0, {6}, {}}}));
  EXPECT_EQ(mixed.row(tree, 0), mixed.row(plain, 0));
}

TEST(RefTree, AnAbandonedCycleChangesNothing) {
  const Mixed mixed;
  PlanRunner once = open(mixed.b);
  PlanRunner twice = open(mixed.b);
  for (PlanRunner* runner : {&once, &twice})
    ASSERT_TRUE(runner->prefill(0, iota(1, 7)));
  ASSERT_TRUE(twice.decode({{0, {5, 9, 3}, {-1, 0, 0}}}));  // nothing accepted
  for (PlanRunner* runner : {&once, &twice})
    ASSERT_TRUE(runner->decode({{0, {6}, {}}}));
  EXPECT_EQ(mixed.row(once, 0), mixed.row(twice, 0));
}

TEST(RefState, ASnapshotRestoresTheSequence) {
  const Mixed mixed;
  PlanRunner runner = open(mixed.b);
  ASSERT_TRUE(runner.prefill(0, iota(1, 7)));
  std::vector<std::byte> bytes(static_cast<size_t>(runner.program().state_bytes()));
  ASSERT_TRUE(runner.program().save_state(0, bytes));
  ASSERT_TRUE(runner.decode({{0, {6}, {}}}));
  const std::vector<float> before = mixed.row(runner, 0);
  ASSERT_TRUE(runner.program().clear_state(0));
  ASSERT_TRUE(runner.decode({{0, {6}, {}}}));
  EXPECT_NE(mixed.row(runner, 0), before);
  ASSERT_TRUE(runner.program().load_state(0, bytes));
  ASSERT_TRUE(runner.decode({{0, {6}, {}}}));
  EXPECT_EQ(mixed.row(runner, 0), before);
  EXPECT_FALSE(runner.program().load_state(0, std::span(bytes).first(8)));
  EXPECT_FALSE(runner.program().clear_state(2));
}

}  // namespace
}  // namespace kapitsa::test
