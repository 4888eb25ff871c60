// Indexer of sparse attention (transformers, modeling_qwen4_exp, QSA): small heads of its own score
// blocks of the cache by the mean of their keys, and attention sees the best blocks and the last,
// incomplete one. Its keys are cached as they are projected; norm and rope come after the mean.
#pragma once

#include "model/blocks/attention.h"

namespace kapitsa::model {

struct BlockIndexConfig {
  int32_t hidden = 0;
  int32_t n_heads = 0;  // of queries; there is one head of keys
  int32_t dim = 0;      // of a head
  int32_t ratio = 0;    // tokens of a block
  int32_t budget = 0;   // blocks
  float norm_eps = 0.0F;
  // For each layer, a prediction head's last: whether it selects. Attention that does not, as a
  // ratio of 0 in GGUF asks for, sees the whole cache.
  std::vector<bool> selects;
};

// attends: which layers are of attention; the first n_layers are the trunk's. Refuses layers of
// different ratios, and heads that the rotary elements do not fit into.
BlockIndexConfig read_block_index(ConfigReader& reader, const AttentionConfig& attention,
                                  int32_t n_layers, std::vector<bool> attends, int32_t rope_dims);

struct BlockIndexWeights {
  plan::WeightId q;               // (n_heads * dim, hidden), and the rows of k where k is absent
  plan::WeightId k;               // optional (dim, hidden)
  plan::WeightId q_norm, k_norm;  // (dim)
};
// The binder's current layer.
BlockIndexWeights bind_block_index(Binder& binder, const BlockIndexConfig& config);

class BlockIndexRecorder {
public:
  // x: the input of attention (rows, hidden).
  BlockIndexRecorder(plan::Plan& plan, const BlockIndexConfig& config, plan::Rope rope,
                     DType kv_dtype, plan::BufferId x);

  BlockSelection record(const BlockIndexWeights& weights, int32_t layer);

private:
  plan::Plan& plan_;
  BlockIndexConfig config_;
  plan::Rope rope_;
  DType key_dtype_;
  plan::BufferId x_;
};

}  // namespace kapitsa::model
