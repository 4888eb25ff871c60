// The decoder of Qwen3 mixtures of experts and of the models trained from them: attention with an
// RMS norm over each q and k head, and in every layer routed SwiGLU experts in place of the MLP.
// Router: softmax over all experts, the best k, weights divided by their sum (norm_topk_prob).
#pragma once

#include "model/arch.h"

#include <string>

namespace kapitsa::model {

Result<Model> load_sparse_decoder(const weights::Checkpoint& file, const RecordOptions& options,
                                  std::string architecture);

}  // namespace kapitsa::model
