// Routed experts in place of the MLP: router, top-k, weighted sum in rank order, and beside
// them an optional shared expert that every token takes, by a gate of its own.
#pragma once

#include "model/binder.h"
#include "model/blocks/decoder.h"
#include "model/config.h"

namespace kapitsa::model {

struct ExpertsConfig {
  int32_t hidden = 0;
  int32_t width = 0;         // of one expert
  int32_t shared_width = 0;  // of the shared expert; 0: there is none
  bool shared_mix = true;    // the shared expert has a gate of its own
  TensorName norm = kMlpNorm;
  plan::Activation activation = plan::Activation::silu;
  bool gated = true;            // an expert has a gate matrix
  bool selection_bias = false;  // the router adds a bias to the scores that choose
  plan::Router router;
};

// The key of shared_width.
inline constexpr Key kSharedWidth = {"expert_shared_feed_forward_length",
                                     "shared_expert_intermediate_size"};

struct ExpertsWeights {
  plan::WeightId norm;            // optional (hidden)
  plan::WeightId router;          // (n_experts, hidden)
  plan::WeightId selection_bias;  // optional (n_experts)
  plan::WeightId gate, up, down;  // (n_experts, width, hidden) x 2, (n_experts, hidden, width)
  plan::WeightId shared_gate, shared_up;  // optional (shared_width, hidden)
  plan::WeightId shared_down;             // optional (hidden, shared_width)
  plan::WeightId shared_mix;              // optional (1, hidden)
};

// Sizes and their keys: expert_count, expert_used_count, expert_feed_forward_length.
ExpertsConfig read_experts(ConfigReader& reader, int32_t hidden);

// Groups of experts of which only the best are chosen from; one group where the file has none.
void read_router_groups(ConfigReader& reader, plan::Router& router);

// Refuses a file of an architecture with experts in every layer that has dense layers.
void refuse_dense_layers(ConfigReader& reader);

ExpertsWeights bind_experts(Binder& binder, const ExpertsConfig& config);

class ExpertsRecorder {
public:
  // x: the residual stream (rows, hidden); y: see result_of().
  ExpertsRecorder(plan::Plan& plan, const ExpertsConfig& config, plan::BufferId x, float norm_eps,
                  plan::BufferId y = {});

  // x += sum over the chosen experts e of weight_e E_e(n(x)) + sigmoid(mix . n(x)) E_shared(n(x)),
  // E(y) = W_down (f(W_gate y) * W_up y), or W_down f(W_up y) without gate
  void record(const ExpertsWeights& weights, int32_t layer);

private:
  plan::Plan& plan_;
  ExpertsConfig config_;
  plan::BufferId x_;
  plan::Residual result_;
  float norm_eps_;
  plan::BufferId ids_, weights_;  // (rows, top_k)
  plan::BufferId inner_;          // (rows, top_k * width)
  plan::BufferId shared_inner_;   // (rows, shared_width)
  plan::BufferId shared_mix_;     // (rows, 1)
};

}  // namespace kapitsa::model
