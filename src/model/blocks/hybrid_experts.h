// The decoder that Qwen3-Next and Qwen3.5-MoE share: the mixers of the Qwen hybrids, and in every
// layer routed SwiGLU experts beside a shared one with a gate of its own; a prediction head whose
// layer is one of attention. The model files own what their files say differently.
#pragma once

#include "model/blocks/experts.h"
#include "model/blocks/hybrid.h"

namespace kapitsa::model {

// Router: softmax over all experts, the best k, weights divided by their sum.
ExpertsConfig read_hybrid_experts(ConfigReader& reader, int32_t hidden);

Result<Model> record_hybrid_experts(const weights::Checkpoint& file, const RecordOptions& options,
                                    std::string architecture, const HybridConfig& config,
                                    const ExpertsConfig& experts_config);

}  // namespace kapitsa::model
