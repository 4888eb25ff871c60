// Routed SwiGLU experts in place of the MLP: router, top-k, weighted sum in rank order.
#pragma once

#include "model/binder.h"
#include "model/config.h"

namespace kapitsa::model {

struct ExpertsConfig {
  int32_t hidden = 0;
  int32_t width = 0;  // of one expert
  plan::Router router;
};

struct ExpertsWeights {
  plan::WeightId norm;            // (hidden)
  plan::WeightId router;          // (n_experts, hidden)
  plan::WeightId gate, up, down;  // (n_experts, width, hidden) x 2, (n_experts, hidden, width)
};

// Sizes and their keys: expert_count, expert_used_count, expert_feed_forward_length.
ExpertsConfig read_experts(ConfigReader& reader, int32_t hidden);

ExpertsWeights bind_experts(Binder& binder, const ExpertsConfig& config);

class ExpertsRecorder {
public:
  ExpertsRecorder(plan::Plan& plan, const ExpertsConfig& config, plan::BufferId x, float norm_eps);

  // x += sum over the chosen experts e of weight_e W_down,e (silu(W_gate,e n(x)) * W_up,e n(x))
  void record(const ExpertsWeights& weights, int32_t layer);

private:
  plan::Plan& plan_;
  ExpertsConfig config_;
  plan::BufferId x_;
  float norm_eps_;
  plan::BufferId ids_, weights_;  // (rows, top_k)
  plan::BufferId inner_;          // (rows, top_k * width)
};

}  // namespace kapitsa::model
