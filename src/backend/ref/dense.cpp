// Row-wise and dense primitives. Each loop is the formula of plan/primitives.h.
#include "backend/ref/run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kapitsa::backend::ref {
namespace {

// out[r] = f(in[r]) element by element; f(x, column).
template <typename F>
void map(Run& run, plan::BufferId in, plan::BufferId out, F f) {
  for (int32_t r = 0; r < run.n_rows(out); ++r) {
    const auto source = run.row(in, r);
    const auto target = run.row(out, r);
    for (size_t i = 0; i < target.size(); ++i)
      target[i] = f(source[i], i);
  }
}

double softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

}  // namespace

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

std::vector<int32_t> best_first(std::span<const double> values, int64_t n) {
  const auto rank = [&](int32_t i) {
    const double value = values[static_cast<size_t>(i)];
    return std::isnan(value) ? -HUGE_VAL : value;
  };
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(
      order, [&](int32_t a, int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  order.resize(static_cast<size_t>(n));
  return order;
}

double activate(plan::Activation function, double x) {
  switch (function) {
  case plan::Activation::identity: return x;
  case plan::Activation::silu: return x * sigmoid(x);
  case plan::Activation::gelu_tanh: {
    const double inner = std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
  }
  case plan::Activation::relu_squared: return x > 0 ? x * x : 0.0;
  case plan::Activation::sigmoid: return sigmoid(x);
  case plan::Activation::softplus: return softplus(x);
  case plan::Activation::tanh: return std::tanh(x);
  case plan::Activation::signed_sqrt: {
    const double root = std::sqrt(std::max(std::abs(x), 1e-6));
    return x > 0 ? root : x < 0 ? -root : 0.0;
  }
  }
  return x;
}

void normalise(std::span<double> x, std::span<const double> weight, double eps) {
  const double mean_square = dot(x, x) / static_cast<double>(x.size());
  const double scale = 1.0 / std::sqrt(mean_square + eps);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] *= scale * (weight.empty() ? 1.0 : weight[i]);
}

std::vector<double> norm_weight(const plan::Plan& plan, const plan::Norm& norm, int32_t dim,
                                int32_t h) {
  if (!norm.weight) return {};
  std::vector<double> whole = weight_row(plan.weight(norm.weight), 0, 0);
  if (std::ssize(whole) == dim) return whole;
  const auto first = whole.begin() + int64_t{h} * dim;
  return {first, first + dim};
}

void rotate(std::span<double> x, const plan::Rope& rope, int32_t position) {
  const size_t pairs = rope.inv_freq.size();
  for (size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) * static_cast<double>(rope.inv_freq[i]);
    const double c = std::cos(angle) * static_cast<double>(rope.magnitude);
    const double s = std::sin(angle) * static_cast<double>(rope.magnitude);
    const bool half = rope.pairs == plan::RopePairs::half;
    double& first = x[half ? i : 2 * i];
    double& second = x[half ? i + pairs : 2 * i + 1];
    const double a = first;
    const double b = second;
    first = a * c - b * s;
    second = a * s + b * c;
  }
}

void run_op(Run& run, const plan::EmbedRows& op) {
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const int32_t token = run.pass.tokens[static_cast<size_t>(r)];
    std::ranges::copy(weight_row(run.plan.weight(op.table), 0, token), run.row(op.out, r).begin());
  }
}

void run_op(Run& run, const plan::RmsNorm& op) {
  for (int32_t h = 0; h < op.in.count; ++h) {
    const std::vector<double> weight = norm_weight(run.plan, op.norm, op.in.dim, h);
    for (int32_t r = 0; r < run.n_rows(op.out.buffer); ++r) {
      const auto out = run.head(op.out, r, h);
      std::ranges::copy(run.head(op.in, r, h), out.begin());
      normalise(out, weight, static_cast<double>(op.norm.eps));
    }
  }
}

void run_op(Run& run, const plan::L2Norm& op) {
  for (int32_t r = 0; r < run.n_rows(op.x.buffer); ++r) {
    for (int32_t h = 0; h < op.x.count; ++h) {
      const auto x = run.head(op.x, r, h);
      const double scale =
          static_cast<double>(op.scale) / std::sqrt(dot(x, x) + static_cast<double>(op.eps));
      for (double& value : x)
        value *= scale;
    }
  }
}

void run_op(Run& run, const plan::Linear& op) {
  const plan::Weight& weight = run.plan.weight(op.projection.weight);
  const std::vector<double> bias = vector_or(run.plan, op.projection.bias, weight.out, 0.0);
  for (int64_t o = 0; o < weight.out; ++o) {
    const std::vector<double> w = weight_row(weight, 0, o);
    const auto column = static_cast<size_t>(o);
    for (int32_t r = 0; r < run.n_rows(op.in); ++r)
      run.row(op.projection.out, r)[column] = dot(w, run.row(op.in, r)) + bias[column];
  }
}

void run_op(Run& run, const plan::Add& op) {
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const auto b = run.row(op.b, r);
    const auto a = run.row(op.a, r);
    const auto out = run.row(op.out, r);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = a[i] + b[i];
  }
}

void run_op(Run& run, const plan::Mul& op) {
  const auto factor = static_cast<size_t>(run.width(op.a) / run.width(op.b));
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const auto a = run.row(op.a, r);
    const auto b = run.row(op.b, r);
    const auto out = run.row(op.out, r);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = a[i] * b[i / factor];
  }
}

void run_op(Run& run, const plan::Affine& op) {
  map(run, op.in, op.out, [&](double x, size_t) {
    return static_cast<double>(op.scale) * x + static_cast<double>(op.shift);
  });
}

void run_op(Run& run, const plan::Activate& op) {
  map(run, op.in, op.out, [&](double x, size_t) { return activate(op.function, x); });
}

void run_op(Run& run, const plan::ScaleColumns& op) {
  const std::vector<double> weight = weight_row(run.plan.weight(op.weight), 0, 0);
  map(run, op.in, op.out, [&](double x, size_t i) { return weight[i] * x; });
}

void run_op(Run& run, const plan::SoftplusBias& op) {
  const std::vector<double> bias = weight_row(run.plan.weight(op.bias), 0, 0);
  map(run, op.in, op.out, [&](double x, size_t i) {
    return std::clamp(softplus(x + bias[i]), static_cast<double>(op.low),
                      static_cast<double>(op.high));
  });
}

void run_op(Run& run, const plan::Softcap& op) {
  const auto cap = static_cast<double>(op.cap);
  map(run, op.in, op.out, [&](double x, size_t) { return cap * std::tanh(x / cap); });
}

void run_op(Run& run, const plan::Copy& op) {
  for (int32_t r = 0; r < run.n_rows(op.out.buffer); ++r) {
    for (int32_t h = 0; h < op.in.count; ++h) {
      if (run.plan.buffer(op.in.buffer).dtype == DType::i32) {
        const auto from = run.ids(op.in.buffer, r);
        const auto to = run.ids(op.out.buffer, r);
        for (int32_t i = 0; i < op.in.dim; ++i) {
          to[static_cast<size_t>(op.out.offset + h * op.out.stride + i)] =
              from[static_cast<size_t>(op.in.offset + h * op.in.stride + i)];
        }
      } else {
        std::ranges::copy(run.head(op.in, r, h), run.head(op.out, r, h).begin());
      }
    }
  }
}

void run_op(Run& run, const plan::Repeat& op) {
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const auto in = run.row(op.in, r);
    const auto out = run.row(op.out, r);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = in[i % in.size()];
  }
}

void run_op(Run& run, const plan::SumGroups& op) {
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const auto in = run.row(op.in, r);
    const auto out = run.row(op.out, r);
    for (size_t i = 0; i < out.size(); ++i) {
      double sum = 0.0;
      for (size_t g = 0; g < static_cast<size_t>(op.groups); ++g)
        sum += in[g * out.size() + i];
      out[i] = static_cast<double>(op.scale) * sum;
    }
  }
}

void run_op(Run& run, const plan::GroupDot& op) {
  const auto size = static_cast<size_t>(run.width(op.a) / op.groups);
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const auto out = run.row(op.out, r);
    for (size_t g = 0; g < out.size(); ++g) {
      out[g] = static_cast<double>(op.scale) * dot(run.row(op.a, r).subspan(g * size, size),
                                                   run.row(op.b, r).subspan(g * size, size));
    }
  }
}

void run_op(Run& run, const plan::Softmax& op) {
  for (int32_t r = 0; r < run.n_rows(op.out); ++r) {
    const auto in = run.row(op.in, r);
    const auto out = run.row(op.out, r);
    const double top = *std::ranges::max_element(in);
    double sum = 0.0;
    for (size_t i = 0; i < out.size(); ++i)
      sum += out[i] = std::exp(in[i] - top);
    for (double& p : out)
      p /= sum;
  }
}

}  // namespace kapitsa::backend::ref
