// The Mamba-2 token mixer (Dao and Gu, arXiv 2405.21060) as hybrid decoders have it: pre-norm, one
// projection to [z | x | B | C | dt], a short causal convolution over [x | B | C], the state space
// scan, an RMS norm of groups after the gate z, output projection onto the residual.
#pragma once

#include "model/binder.h"
#include "model/config.h"

namespace kapitsa::model {

struct MambaConfig {
  int32_t hidden = 0;
  int32_t n_heads = 0;
  int32_t head_dim = 0;    // p
  int32_t n_groups = 0;    // of heads that share B and C
  int32_t state = 0;       // n: elements of B and C
  int32_t taps = 0;        // of the convolution
  bool log_decay = false;  // the file has A_log, not a = -exp(A_log)
  float dt_low = 0.0F, dt_high = 3.4e38F;
  float norm_eps = 0.0F;

  int32_t inner() const { return n_heads * head_dim; }
  int32_t conv_width() const { return inner() + 2 * n_groups * state; }
  int32_t in_rows() const { return inner() + conv_width() + n_heads; }
};

struct MambaWeights {
  plan::WeightId norm;           // (hidden)
  plan::WeightId in;             // (in_rows, hidden)
  plan::WeightId conv;           // (conv_width, taps)
  plan::WeightId conv_bias;      // optional (conv_width)
  plan::WeightId dt_bias, a, d;  // (n_heads)
  plan::WeightId out_norm;       // (inner)
  plan::WeightId out;            // (hidden, inner)
};

// Sizes and their keys: ssm.* in GGUF, mamba_* and others in config.json. Refuses sizes that do not
// divide.
MambaConfig read_mamba(ConfigReader& reader, int32_t hidden, float norm_eps);

// The binder's current layer.
MambaWeights bind_mamba(Binder& binder, const MambaConfig& config);

class MambaRecorder {
public:
  // x: the residual stream (rows, hidden).
  MambaRecorder(plan::Plan& plan, const MambaConfig& config, plan::BufferId x);

  // x += W_out mamba(W_in n(x)); see plan::MambaMix.
  void record(const MambaWeights& weights, int32_t layer);

private:
  plan::Plan& plan_;
  MambaConfig config_;
  plan::BufferId x_;
  plan::BufferId in_;   // (rows, in_rows)
  plan::BufferId out_;  // (rows, inner)
};

}  // namespace kapitsa::model
