// Mixture of experts: which experts a row uses, their projections, and the weighted sum of what
// they gave. An expert is read once for all rows that chose it; the sum runs over slots in rank
// order, whatever else the pass holds.
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "base/huge_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

constexpr float kExcluded = -INFINITY;

// Index of the largest of n values, the lowest one where equal; also right with NaN among them.
int64_t best_index(const float* values, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

float two_best_sum(const float* values, int64_t n) {
  float first = kExcluded, second = kExcluded;
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return n > 1 ? first + second : first;
}

// Excludes the experts of all groups but the `top_groups` best; of equal ones the lower is better.
void keep_groups(const plan::Router& router, float* ranking, float* group_score) {
  const int64_t size = router.n_experts / router.n_groups;
  for (int64_t g = 0; g < router.n_groups; ++g)
    group_score[g] = two_best_sum(ranking + g * size, size);
  for (int64_t g = 0; g < router.n_groups; ++g) {
    int32_t n_better = 0;
    for (int64_t other = 0; other < router.n_groups; ++other) {
      const bool better = group_score[other] > group_score[g] ||
                          (other < g && group_score[other] == group_score[g]);
      if (better) ++n_better;
    }
    if (n_better >= router.top_groups) std::fill_n(ranking + g * size, size, kExcluded);
  }
}

// Scores of all experts, or the logits themselves where only the chosen ones are normalised.
void score_all(const Context& c, const plan::Router& router, const float* logits, float* scores) {
  const int64_t n = router.n_experts;
  if (router.score == plan::RouterScore::sigmoid) {
    c.kernels->activate(Function::sigmoid, logits, scores, n);
    return;
  }
  std::memcpy(scores, logits, static_cast<size_t>(n) * sizeof(float));
  if (router.score == plan::RouterScore::softmax) {
    const float highest = *std::max_element(scores, scores + n);
    const float factor = 1.0F / c.kernels->exp_sum(scores, n, highest);
    for (int64_t i = 0; i < n; ++i)
      scores[i] *= factor;
  }
}

void finish_weights(const Context& c, const plan::Router& router, const int32_t* ids,
                    float* weights) {
  const int64_t k = router.top_k;
  if (router.score == plan::RouterScore::softmax_selected) {
    const float highest = *std::max_element(weights, weights + k);
    const float factor = 1.0F / c.kernels->exp_sum(weights, k, highest);
    for (int64_t i = 0; i < k; ++i)
      weights[i] *= factor;
  }
  if (router.renormalise) {
    float sum = 0.0F;
    for (int64_t i = 0; i < k; ++i)
      sum += weights[i];
    for (int64_t i = 0; i < k; ++i)
      weights[i] /= sum + 1e-20F;
  }
  const float* expert_scale = c.vector(router.expert_scale);
  for (int64_t i = 0; i < k; ++i) {
    weights[i] *= router.scale;
    if (expert_scale != nullptr) weights[i] *= expert_scale[ids[i]];
  }
}

// The choices (row * top_k + slot) of a pass, sorted by expert.
struct Choices {
  int32_t* first;  // (n_experts + 1): choices of expert e are first[e]..first[e + 1] - 1
  int32_t* order;  // (choices)
  int32_t* rows;   // (choices) the row of each
};
int64_t choices_bytes(int64_t n_experts, int64_t n_choices) {
  return round_up((n_experts + 1 + 2 * n_choices) * 4, kLine);
}

Choices sort_choices(std::span<const int32_t> ids, int64_t n_experts, int64_t top_k,
                     std::byte* memory) {
  const auto n = std::ssize(ids);
  Choices choices = {};
  choices.first = reinterpret_cast<int32_t*>(memory);
  choices.order = choices.first + n_experts + 1;
  choices.rows = choices.order + n;
  std::fill_n(choices.first, n_experts + 1, 0);
  for (const int32_t id : ids)
    ++choices.first[id + 1];
  for (int64_t e = 0; e < n_experts; ++e)
    choices.first[e + 1] += choices.first[e];
  for (int64_t i = 0; i < n; ++i) {
    const int32_t at = choices.first[ids[static_cast<size_t>(i)]]++;
    choices.order[at] = static_cast<int32_t>(i);
    choices.rows[at] = static_cast<int32_t>(i / top_k);
  }
  for (int64_t e = n_experts; e > 0; --e)
    choices.first[e] = choices.first[e - 1];
  choices.first[0] = 0;
  return choices;
}

}  // namespace

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::ExpertLinear& op) {
  const plan::Weight& weight = plan.weight(op.weight);
  return project_bytes(limits, weight) +
         choices_bytes(weight.experts, limits.max_rows * plan.buffer(op.ids).width);
}
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::ExpertLinear& op) {
  const plan::Weight& weight = plan.weight(op.weight);
  return input_bytes(limits.max_rows * plan.buffer(op.in).width / weight.in, weight.in);
}

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& /*limits*/,
                      const plan::SelectExperts& op) {
  return round_up((2 * int64_t{op.router.n_experts} + op.router.n_groups) * 4, kLine);
}

void run_op(const Context& c, const Worker& w, const plan::SelectExperts& op) {
  const plan::Router& router = op.router;
  const int64_t n = router.n_experts;
  auto* scores = reinterpret_cast<float*>(w.scratch);
  float* ranking = scores + n;
  float* group_score = ranking + n;
  const float* bias = c.vector(router.selection_bias);
  const Range rows = partition(c.n_rows(op.ids), w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    score_all(c, router, c.f32(op.logits) + row * n, scores);
    for (int64_t i = 0; i < n; ++i)
      ranking[i] = bias != nullptr ? scores[i] + bias[i] : scores[i];
    if (router.n_groups > 1) keep_groups(router, ranking, group_score);
    int32_t* ids = c.i32(op.ids) + row * router.top_k;
    float* weights = c.f32(op.weights) + row * router.top_k;
    for (int32_t slot = 0; slot < router.top_k; ++slot) {
      const int64_t best = best_index(ranking, n);
      ids[slot] = static_cast<int32_t>(best);
      weights[slot] = scores[best];
      ranking[best] = kExcluded;
    }
    finish_weights(c, router, ids, weights);
  }
}

void run_op(const Context& c, const Worker& w, const plan::ExpertLinear& op) {
  const WeightView& weight = c.weight(op.weight);
  const int64_t top_k = c.width(op.ids);
  const int64_t n_rows = c.n_rows(op.ids);
  const bool shared = c.width(op.in) == weight.in;  // one input for all slots of a row
  const Input input = prepare_input(c, w,
                                    {.data = c.f32(op.in),
                                     .stride = weight.in,
                                     .n_rows = shared ? n_rows : n_rows * top_k,
                                     .k = weight.in},
                                    {&op.weight, 1}, w.shared);
  const Choices choices =
      sort_choices({c.i32(op.ids), static_cast<size_t>(n_rows * top_k)}, weight.experts, top_k,
                   w.scratch + project_bytes(c.limits, *weight.source));
  const Range outs = partition(weight.out, w.thread, w.n_threads, kPanelRows);
  for (int64_t e = 0; e < weight.experts; ++e) {
    const auto first = static_cast<size_t>(choices.first[e]);
    const auto n = static_cast<size_t>(choices.first[e + 1]) - first;
    if (n == 0) continue;
    project(c, w, input,
            {.weight = op.weight, .expert = e, .out = c.f32(op.out), .out_stride = weight.out},
            outs,
            {.in = {(shared ? choices.rows : choices.order) + first, n},
             .out = {choices.order + first, n}});
  }
}

void run_op(const Context& c, const Worker& w, const plan::CombineExperts& op) {
  const int64_t width = c.width(op.out);
  const int64_t top_k = c.width(op.weights);
  const Range rows = partition(c.n_rows(op.out), w.thread, w.n_threads);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* in = c.f32(op.in) + row * top_k * width;
    const float* weights = c.f32(op.weights) + row * top_k;
    float* out = c.f32(op.out) + row * width;
    for (int64_t i = 0; i < width; ++i)
      out[i] = weights[0] * in[i];
    for (int64_t slot = 1; slot < top_k; ++slot) {
      for (int64_t i = 0; i < width; ++i)
        out[i] += weights[slot] * in[slot * width + i];
    }
  }
}

}  // namespace kapitsa::backend::cpu
