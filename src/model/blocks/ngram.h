// Hashed n-gram embedding added to the residual streams before one layer (transformers,
// modeling_qwen4_exp, per-layer embedding): a row of a large table for each head, chosen by a hash
// of the last tokens. The table stays in the mapped file: a token reads its rows of it and no
// others. Files keep the constants of the hash: GGUF in metadata, Hugging Face in tensors.
#pragma once

#include "model/binder.h"
#include "model/blocks/streams.h"
#include "model/config.h"

namespace kapitsa::model {

struct NgramConfig {
  int32_t layer = -1;    // < 0: the model has no such embedding
  int32_t n_tokens = 0;  // of the longest n-gram; also the dilation of the convolution
  int32_t heads_per_ngram = 0;
  int32_t taps = 0;  // of the convolution
  int32_t eos_token = -1;
  int32_t dim = 0;        // of a table row
  int32_t n_parts = 1;    // tensors that the table is in
  int64_t part_rows = 0;  // 0: the file lacks the table
  // Constants of the hash; empty where they are tensors.
  std::vector<int64_t> multipliers, head_offsets, head_vocab;

  int32_t n_heads() const { return (n_tokens - 1) * heads_per_ngram; }
};

NgramConfig read_ngram(ConfigReader& reader, int32_t hidden, int32_t n_layers, int32_t n_vocab);

// Binds and records at the binder's current layer: x += embedding, for all streams of x (rows,
// count * hidden).
Status record_ngram(plan::Plan& plan, Binder& binder, const NgramConfig& config,
                    const StreamsConfig& streams, plan::BufferId x);

}  // namespace kapitsa::model
