// Mixture of experts: the router's choice and the chosen experts' projections.
#include "backend/ref/run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kapitsa::backend::ref {
namespace {

std::vector<double> softmax(std::span<const double> x) {
  const double top = *std::ranges::max_element(x);
  std::vector<double> p;
  double sum = 0.0;
  for (const double value : x) {
    p.push_back(std::exp(value - top));
    sum += p.back();
  }
  for (double& value : p)
    value /= sum;
  return p;
}

// Leaves only the experts of the best groups: a group counts the sum of its two best scores.
void drop_groups(const plan::Router& router, std::span<double> choice) {
  if (router.n_groups <= 1) return;
  const auto size = choice.size() / static_cast<size_t>(router.n_groups);
  std::vector<double> group_scores;
  for (size_t g = 0; g < static_cast<size_t>(router.n_groups); ++g) {
    const auto group = choice.subspan(g * size, size);
    double score = 0.0;
    for (const int32_t e : best_first(group, static_cast<int32_t>(std::min<size_t>(2, size))))
      score += group[static_cast<size_t>(e)];
    group_scores.push_back(score);
  }
  const std::vector<int32_t> kept = best_first(group_scores, router.top_groups);
  for (size_t e = 0; e < choice.size(); ++e) {
    if (std::ranges::find(kept, static_cast<int32_t>(e / size)) == kept.end())
      choice[e] = -HUGE_VAL;
  }
}

}  // namespace

void run_op(Run& run, const plan::SelectExperts& op) {
  const plan::Router& router = op.router;
  const std::vector<double> bias =
      vector_or(run.plan, router.selection_bias, router.n_experts, 0.0);
  const std::vector<double> expert_scale =
      vector_or(run.plan, router.expert_scale, router.n_experts, 1.0);
  for (int32_t r = 0; r < run.n_rows(op.logits); ++r) {
    const auto logits = run.row(op.logits, r);
    std::vector<double> scores(logits.begin(), logits.end());
    if (router.score == plan::RouterScore::softmax) scores = softmax(logits);
    if (router.score == plan::RouterScore::sigmoid) {
      for (double& score : scores)
        score = activate(plan::Activation::sigmoid, score);
    }
    std::vector<double> choice = scores;
    for (size_t e = 0; e < choice.size(); ++e)
      choice[e] += bias[e];
    drop_groups(router, choice);

    const std::vector<int32_t> ids = best_first(choice, router.top_k);
    std::vector<double> weights;
    for (const int32_t e : ids)
      weights.push_back(scores[static_cast<size_t>(e)]);
    if (router.score == plan::RouterScore::softmax_selected) weights = softmax(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t j = 0; j < ids.size(); ++j) {
      const double share = router.renormalise ? weights[j] / (sum + 1e-20) : weights[j];
      run.ids(op.ids, r)[j] = ids[j];
      run.row(op.weights, r)[j] =
          share * static_cast<double>(router.scale) * expert_scale[static_cast<size_t>(ids[j])];
    }
  }
}

void run_op(Run& run, const plan::ExpertLinear& op) {
  const plan::Weight& weight = run.plan.weight(op.weight);
  const auto n_in = static_cast<size_t>(weight.in);
  const auto n_out = static_cast<size_t>(weight.out);
  const bool shared = run.width(op.in) == weight.in;
  for (int32_t r = 0; r < run.n_rows(op.in); ++r) {
    const auto ids = run.ids(op.ids, r);
    for (size_t slot = 0; slot < ids.size(); ++slot) {
      const auto in = run.row(op.in, r).subspan(shared ? 0 : slot * n_in, n_in);
      const auto out = run.row(op.out, r).subspan(slot * n_out, n_out);
      for (size_t o = 0; o < n_out; ++o)
        out[o] = dot(weight_row(weight, ids[slot], static_cast<int64_t>(o)), in);
    }
  }
}

void run_op(Run& run, const plan::CombineExperts& op) {
  for (int32_t r = 0; r < run.n_rows(op.in); ++r) {
    const auto weights = run.row(op.weights, r);
    const auto out = run.row(op.out, r);
    std::ranges::fill(out, 0.0);
    for (size_t slot = 0; slot < weights.size(); ++slot) {
      const auto in = run.row(op.in, r).subspan(slot * out.size(), out.size());
      for (size_t i = 0; i < out.size(); ++i)
        out[i] += weights[slot] * in[i];
    }
  }
}

}  // namespace kapitsa::backend::ref
