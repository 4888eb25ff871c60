// Projections of dense models. Threads split the output columns; a step prepares its input once and
// meets the other threads only where it must (matmul.h).
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"

#include <algorithm>
#include <array>

namespace kapitsa::backend::cpu {
namespace {

Source rows_of(const Context& c, plan::BufferId id, const plan::Norm& norm = {}) {
  return {.data = c.f32(id),
          .stride = c.width(id),
          .n_rows = c.n_rows(id),
          .k = c.width(id),
          .norm = norm};
}

Product product_of(const Context& c, const plan::Projection& projection) {
  return {.weight = projection.weight,
          .bias = c.vector(projection.bias),
          .out = c.f32(projection.out),
          .out_stride = c.width(projection.out)};
}

// residual (+)= W in + bias. `y` (rows, out) is needed where the product cannot go straight into
// the residual.
void project_residual(const Context& c, const Worker& w, const Input& input, plan::WeightId weight,
                      plan::WeightId bias, const plan::Residual& residual, float* y) {
  const int64_t width = c.width(residual.out);
  const bool straight = !residual.post_norm.present && residual.scale == 1.0F;
  const Product product = {.weight = weight,
                           .bias = c.vector(bias),
                           .out = straight ? c.f32(residual.out) : y,
                           .out_stride = width,
                           .accumulate = straight && residual.accumulate};
  project_share(c, w, input, {&product, 1});
  if (straight) return;
  c.pool->barrier();
  const Range rows = partition(input.n_rows, w.thread, w.n_threads);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* from = y + r * width;
    float* out = c.f32(residual.out) + r * width;
    if (residual.post_norm.present)
      normalise(c, from, width, residual.post_norm.eps, c.vector(residual.post_norm.weight), from);
    for (int64_t i = 0; i < width; ++i)
      out[i] = residual.scale * from[i] + (residual.accumulate ? out[i] : 0.0F);
  }
}

int64_t residual_bytes(const plan::Plan& plan, int64_t n_rows, const plan::Residual& residual) {
  return round_up(n_rows * plan.buffer(residual.out).width * 4, kLine);
}

int64_t max_rows_of(const plan::Plan& plan, const ProgramLimits& limits, plan::BufferId id) {
  return plan.buffer(id).rows == plan::RowSpace::pass ? limits.max_rows : limits.max_outputs;
}

// Rows of an MLP whose inner values stay in the cache between its two halves.
constexpr int64_t kMlpRows = 64;
constexpr int64_t kMlpGrain = 32;  // columns: whole panels and whole activation groups

// The shared scratch of an MLP.
struct MlpMemory {
  std::byte* input;
  float* gate;  // (rows, width)
  float* up;    // (rows, width)
  uint8_t* records;
  float* y;  // (rows, hidden)
};
MlpMemory mlp_memory(const Worker& w, int64_t n_rows, int64_t k, int64_t width) {
  const int64_t inner = round_up(n_rows * width * 4, kLine);
  std::byte* at = w.shared + input_bytes(n_rows, k);
  std::byte* records = at + 2 * inner;
  return {w.shared, reinterpret_cast<float*>(at), reinterpret_cast<float*>(at + inner),
          reinterpret_cast<uint8_t*>(records),
          reinterpret_cast<float*>(records + n_rows * activation_layout(width).bytes)};
}

// gate = f(gate) * up, or f(up), for one row's columns.
void activate(const Context& c, plan::Activation activation, bool gated, float* gate,
              const float* up, int64_t n) {
  const float* in = gated ? gate : up;
  if (activation == plan::Activation::identity) {
    std::copy_n(in, n, gate);
  } else {
    c.kernels->activate(kernel_function(activation), in, gate, n);
  }
  if (!gated) return;
  for (int64_t i = 0; i < n; ++i)
    gate[i] *= up[i];
}

}  // namespace

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Linear& op) {
  return project_bytes(limits, plan.weight(op.projection.weight));
}
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::NormLinear& op) {
  int64_t bytes = 0;
  for (const plan::Projection& projection : op.projections)
    bytes = std::max(bytes, project_bytes(limits, plan.weight(projection.weight)));
  return bytes;
}
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::LinearAdd& op) {
  return project_bytes(limits, plan.weight(op.weight));
}
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Mlp& op) {
  return std::max(project_bytes(limits, plan.weight(op.up)),
                  project_bytes(limits, plan.weight(op.down)));
}
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Head& op) {
  return project_bytes(limits, plan.weight(op.weight));
}

int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Linear& op) {
  return input_bytes(max_rows_of(plan, limits, op.in), plan.buffer(op.in).width);
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::NormLinear& op) {
  return input_bytes(max_rows_of(plan, limits, op.x), plan.buffer(op.x).width);
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::LinearAdd& op) {
  const int64_t n_rows = max_rows_of(plan, limits, op.in);
  return input_bytes(n_rows, plan.buffer(op.in).width) + residual_bytes(plan, n_rows, op.residual);
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Mlp& op) {
  const int64_t n_rows = max_rows_of(plan, limits, op.x);
  const int64_t width = plan.weight(op.up).out;
  return input_bytes(n_rows, plan.buffer(op.x).width) + 2 * round_up(n_rows * width * 4, kLine) +
         n_rows * activation_layout(width).bytes + residual_bytes(plan, n_rows, op.residual);
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Head& op) {
  return std::max(input_bytes(limits.max_outputs, plan.buffer(op.x).width),
                  top_logits_bytes(limits.max_outputs, plan.buffer(op.logits).width));
}

void run_op(const Context& c, const Worker& w, const plan::Linear& op) {
  const Input input = prepare_input(c, w, rows_of(c, op.in), {&op.projection.weight, 1}, w.shared);
  const Product product = product_of(c, op.projection);
  project_share(c, w, input, {&product, 1});
}

void run_op(const Context& c, const Worker& w, const plan::NormLinear& op) {
  std::array<plan::WeightId, kMaxProjections> weights;
  std::array<Product, kMaxProjections> products;
  const size_t n = op.projections.size();
  for (size_t i = 0; i < n; ++i) {
    weights[i] = op.projections[i].weight;
    products[i] = product_of(c, op.projections[i]);
  }
  const Input input =
      prepare_input(c, w, rows_of(c, op.x, op.norm), std::span(weights).first(n), w.shared);
  project_share(c, w, input, std::span(products).first(n));
}

void run_op(const Context& c, const Worker& w, const plan::LinearAdd& op) {
  const Input input = prepare_input(c, w, rows_of(c, op.in), {&op.weight, 1}, w.shared);
  auto* y = reinterpret_cast<float*>(w.shared + input_bytes(input.n_rows, input.k));
  project_residual(c, w, input, op.weight, op.bias, op.residual, y);
}

void run_op(const Context& c, const Worker& w, const plan::Mlp& op) {
  const int64_t n_rows = c.n_rows(op.x);
  const int64_t width = c.weight(op.up).out;
  const MlpMemory m = mlp_memory(w, n_rows, c.width(op.x), width);
  const std::array<plan::WeightId, 2> up_weights = {op.up, op.gate ? op.gate : op.up};
  Input input = prepare_input(c, w, rows_of(c, op.x, op.norm), up_weights, m.input);

  const Range own = partition(width, w.thread, w.n_threads, kMlpGrain);
  const int64_t n_own = own.end - own.begin;
  const bool down_panels = uses_panels(c, op.down);
  const int64_t record_bytes = activation_layout(width).bytes;
  const int64_t input_record_bytes = activation_layout(input.k).bytes;
  for (int64_t first = 0; first < n_rows && n_own > 0; first += kMlpRows) {
    Input chunk = input;
    chunk.n_rows = std::min(kMlpRows, n_rows - first);
    if (chunk.plain != nullptr) chunk.plain += first * input.stride;
    if (chunk.records != nullptr) chunk.records += first * input_record_bytes;
    const auto inner = [&](plan::WeightId weight, float* to) {
      project(c, w, chunk, {.weight = weight, .out = to + first * width, .out_stride = width}, own);
    };
    if (op.gate) inner(op.gate, m.gate);
    inner(op.up, m.up);
    for (int64_t r = first; r < first + chunk.n_rows; ++r) {
      float* gate = m.gate + r * width;
      activate(c, op.activation, static_cast<bool>(op.gate), gate + own.begin,
               m.up + r * width + own.begin, n_own);
      if (down_panels)
        c.kernels->quantise(gate, width, own.begin, own.end, c.planes(),
                            m.records + r * record_bytes);
    }
  }
  c.pool->barrier();
  const Input down = {.k = width,
                      .n_rows = n_rows,
                      .plain = m.gate,
                      .stride = width,
                      .records = m.records,
                      .planes = c.planes()};
  project_residual(c, w, down, op.down, {}, op.residual, m.y);
}

void run_op(const Context& c, const Worker& w, const plan::Head& op) {
  Source source = rows_of(c, op.x, op.norm);
  source.rows = c.pass->outputs;
  source.n_rows = std::ssize(c.pass->outputs);
  // Few rows of a prompt have logits, and nothing after the head evens its errors out.
  source.exact = true;
  if (source.n_rows == 0) return;
  const Input input = prepare_input(c, w, source, {&op.weight, 1}, w.shared);
  const int64_t vocab = c.width(op.logits);
  const Range own = partition(vocab, w.thread, w.n_threads, kPanelRows);
  project(c, w, input, {.weight = op.weight, .out = c.f32(op.logits), .out_stride = vocab}, own);
  for (int64_t r = 0; r < source.n_rows && own.end > own.begin; ++r) {
    float* logits = c.f32(op.logits) + r * vocab + own.begin;
    const int64_t n = own.end - own.begin;
    if (op.scale != 1.0F) {
      for (int64_t i = 0; i < n; ++i)
        logits[i] *= op.scale;
    }
    if (op.softcap > 0.0F) c.kernels->softcap(logits, logits, n, op.softcap);
  }
  if (!op.top_ids) return;
  c.pool->barrier();
  run_op(c, w, plan::TopLogits{op.logits, op.top_ids, op.top_values, op.log_sum_exp});
}

}  // namespace kapitsa::backend::cpu
