// The steps in which a row needs nothing but itself. They are small beside the projections; their
// loops are plain, and the compiler vectorises the simple ones.
#include "backend/cpu/ops.h"
#include "backend/weight_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

Range own_rows(const Context& c, const Worker& w, plan::BufferId id) {
  return partition(c.n_rows(id), w.thread, w.n_threads);
}

// f(row) for this thread's rows of the buffer.
template <typename F>
void for_rows(const Context& c, const Worker& w, plan::BufferId id, F&& f) {
  const Range rows = own_rows(c, w, id);
  for (int64_t row = rows.begin; row < rows.end; ++row)
    f(row);
}

// f(in, out, width) for this thread's rows of two equally wide buffers, all rows at once.
template <typename F>
void for_elements(const Context& c, const Worker& w, plan::BufferId in, plan::BufferId out, F&& f) {
  const Range rows = own_rows(c, w, out);
  const int64_t width = c.width(out);
  f(c.f32(in) + rows.begin * width, c.f32(out) + rows.begin * width,
    (rows.end - rows.begin) * width);
}

}  // namespace

Function kernel_function(plan::Activation activation) {
  switch (activation) {
  case plan::Activation::silu: return Function::silu;
  case plan::Activation::gelu_tanh: return Function::gelu_tanh;
  case plan::Activation::relu_squared: return Function::relu_squared;
  case plan::Activation::sigmoid: return Function::sigmoid;
  case plan::Activation::softplus: return Function::softplus;
  case plan::Activation::tanh: return Function::tanh;
  case plan::Activation::signed_sqrt: return Function::signed_sqrt;
  case plan::Activation::identity: break;
  }
  KAPITSA_CHECK(false, "identity has no kernel");
}

void run_op(const Context& c, const Worker& w, const plan::EmbedRows& op) {
  const WeightView& table = c.weight(op.table);
  const int64_t width = c.width(op.out);
  for_rows(c, w, op.out, [&](int64_t row) {
    const int64_t token = c.pass->tokens[static_cast<size_t>(row)];
    decode_row(*table.source, 0, token, {c.f32(op.out) + row * width, static_cast<size_t>(width)});
  });
}

void run_op(const Context& c, const Worker& w, const plan::RmsNorm& op) {
  const HeadRows in = c.heads(op.in);
  const HeadRows out = c.heads(op.out);
  const int64_t dim = op.in.dim;
  const float* weight = c.vector(op.norm.weight);
  const bool shared = weight != nullptr && c.weight(op.norm.weight).in == dim;
  for_rows(c, w, op.out.buffer, [&](int64_t row) {
    for (int64_t h = 0; h < op.in.count; ++h) {
      const float* g = weight == nullptr || shared ? weight : weight + h * dim;
      normalise(c, in.at(row, h), dim, op.norm.eps, g, out.at(row, h));
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::L2Norm& op) {
  const HeadRows heads = c.heads(op.x);
  for_rows(c, w, op.x.buffer, [&](int64_t row) {
    for (int64_t h = 0; h < op.x.count; ++h) {
      float* x = heads.at(row, h);
      const float factor =
          op.scale / std::sqrt(c.kernels->dot(x, x, Plain::f32, op.x.dim) + op.eps);
      for (int64_t i = 0; i < op.x.dim; ++i)
        x[i] *= factor;
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::Add& op) {
  const float* b = c.f32(op.b) + own_rows(c, w, op.out).begin * c.width(op.out);
  for_elements(c, w, op.a, op.out, [&](const float* a, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      out[i] = a[i] + b[i];
  });
}

void run_op(const Context& c, const Worker& w, const plan::Mul& op) {
  const int64_t b_width = c.width(op.b);
  const int64_t factor = c.width(op.a) / b_width;
  const float* b = c.f32(op.b) + own_rows(c, w, op.out).begin * b_width;
  for_elements(c, w, op.a, op.out, [&](const float* a, float* out, int64_t n) {
    if (factor == 1) {
      for (int64_t i = 0; i < n; ++i)
        out[i] = a[i] * b[i];
      return;
    }
    for (int64_t group = 0; group * factor < n; ++group) {
      for (int64_t i = group * factor; i < (group + 1) * factor; ++i)
        out[i] = a[i] * b[group];
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::Affine& op) {
  for_elements(c, w, op.in, op.out, [&](const float* in, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      out[i] = op.scale * in[i] + op.shift;
  });
}

void run_op(const Context& c, const Worker& w, const plan::Activate& op) {
  for_elements(c, w, op.in, op.out, [&](const float* in, float* out, int64_t n) {
    if (op.function != plan::Activation::identity) {
      c.kernels->activate(kernel_function(op.function), in, out, n);
    } else if (in != out) {
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::ScaleColumns& op) {
  const float* weight = c.vector(op.weight);
  const int64_t width = c.width(op.out);
  for_rows(c, w, op.out, [&](int64_t row) {
    const float* in = c.f32(op.in) + row * width;
    float* out = c.f32(op.out) + row * width;
    for (int64_t i = 0; i < width; ++i)
      out[i] = weight[i] * in[i];
  });
}

void run_op(const Context& c, const Worker& w, const plan::SoftplusBias& op) {
  const float* bias = c.vector(op.bias);
  const int64_t width = c.width(op.out);
  for_rows(c, w, op.out, [&](int64_t row) {
    const float* in = c.f32(op.in) + row * width;
    float* out = c.f32(op.out) + row * width;
    for (int64_t i = 0; i < width; ++i)
      out[i] = in[i] + bias[i];
    c.kernels->activate(Function::softplus, out, out, width);
    for (int64_t i = 0; i < width; ++i)
      out[i] = std::clamp(out[i], op.low, op.high);
  });
}

void run_op(const Context& c, const Worker& w, const plan::Softcap& op) {
  for_elements(c, w, op.in, op.out, [&](const float* in, float* out, int64_t n) {
    c.kernels->softcap(in, out, n, op.cap);
  });
}

void run_op(const Context& c, const Worker& w, const plan::Copy& op) {
  const HeadRows in = c.heads(op.in);
  const HeadRows out = c.heads(op.out);
  const auto bytes = static_cast<size_t>(op.in.dim) * sizeof(float);  // i32 is as wide
  for_rows(c, w, op.out.buffer, [&](int64_t row) {
    for (int64_t h = 0; h < op.in.count; ++h)
      std::memcpy(out.at(row, h), in.at(row, h), bytes);
  });
}

void run_op(const Context& c, const Worker& w, const plan::Repeat& op) {
  const int64_t width = c.width(op.in);
  for_rows(c, w, op.out, [&](int64_t row) {
    for (int64_t copy = 0; copy < op.copies; ++copy) {
      std::memcpy(c.f32(op.out) + (row * op.copies + copy) * width, c.f32(op.in) + row * width,
                  static_cast<size_t>(width) * sizeof(float));
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::SumGroups& op) {
  const int64_t width = c.width(op.out);
  for_rows(c, w, op.out, [&](int64_t row) {
    const float* in = c.f32(op.in) + row * width * op.groups;
    float* out = c.f32(op.out) + row * width;
    for (int64_t i = 0; i < width; ++i) {
      float sum = in[i];
      for (int64_t group = 1; group < op.groups; ++group)
        sum += in[group * width + i];
      out[i] = op.scale * sum;
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::GroupDot& op) {
  const int64_t dim = c.width(op.a) / op.groups;
  for_rows(c, w, op.out, [&](int64_t row) {
    for (int64_t g = row * op.groups; g < (row + 1) * op.groups; ++g) {
      c.f32(op.out)[g] =
          op.scale * c.kernels->dot(c.f32(op.a) + g * dim, c.f32(op.b) + g * dim, Plain::f32, dim);
    }
  });
}

void run_op(const Context& c, const Worker& w, const plan::Softmax& op) {
  const int64_t width = c.width(op.out);
  for_rows(c, w, op.out, [&](int64_t row) {
    const float* in = c.f32(op.in) + row * width;
    float* out = c.f32(op.out) + row * width;
    if (in != out) std::memcpy(out, in, static_cast<size_t>(width) * sizeof(float));
    const float highest = *std::max_element(out, out + width);
    const float factor = 1.0F / c.kernels->exp_sum(out, width, highest);
    for (int64_t i = 0; i < width; ++i)
      out[i] *= factor;
  });
}

void run_op(const Context& c, const Worker& w, const plan::ApplyRope& op) {
  const HeadRows heads = c.heads(op.x);
  const auto n_pairs = static_cast<int64_t>(op.rope.inv_freq.size());
  const float* angles = c.rope_values(op.rope);
  for_rows(c, w, op.x.buffer, [&](int64_t row) {
    for (int64_t h = 0; h < op.x.count; ++h)
      rotate(heads.at(row, h), angles + row * 2 * n_pairs, n_pairs, op.rope.pairs);
  });
}

void normalise(const Context& c, const float* x, int64_t n, float eps, const float* weight,
               float* y) {
  const float squares = c.kernels->dot(x, x, Plain::f32, n);
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(n) + eps);
  if (weight == nullptr) {
    for (int64_t i = 0; i < n; ++i)
      y[i] = x[i] * scale;
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    y[i] = x[i] * scale * weight[i];
}

void rotate(float* x, const float* angles, int64_t n_pairs, plan::RopePairs pairs) {
  if (pairs == plan::RopePairs::half) {
    for (int64_t i = 0; i < n_pairs; ++i) {
      const float a = x[i], b = x[i + n_pairs];
      x[i] = a * angles[2 * i] - b * angles[2 * i + 1];
      x[i + n_pairs] = b * angles[2 * i] + a * angles[2 * i + 1];
    }
    return;
  }
  for (int64_t i = 0; i < 2 * n_pairs; i += 2) {
    const float a = x[i], b = x[i + 1];
    x[i] = a * angles[i] - b * angles[i + 1];
    x[i + 1] = b * angles[i] + a * angles[i + 1];
  }
}

void fill_ropes(const Context& c, const Worker& w) {
  const Range rows = partition(c.pass->n_rows(), w.thread, w.n_threads);
  for (const RopeTable& table : c.ropes) {
    const auto n_pairs = std::ssize(table.rope->inv_freq);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const double position = c.pass->positions[static_cast<size_t>(row)];
      float* values = table.values + row * 2 * n_pairs;
      for (int64_t i = 0; i < n_pairs; ++i) {
        // In double: a product of two floats loses the angle at long positions.
        const double angle =
            position * static_cast<double>(table.rope->inv_freq[static_cast<size_t>(i)]);
        values[2 * i] = static_cast<float>(std::cos(angle)) * table.rope->magnitude;
        values[2 * i + 1] = static_cast<float>(std::sin(angle)) * table.rope->magnitude;
      }
    }
  }
}

}  // namespace kapitsa::backend::cpu
