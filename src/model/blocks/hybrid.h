// The token mixers of the Qwen hybrids: gated delta rule in most layers, gated attention with a
// norm of each q and k head and a partial rope in the others. The model file owns what stands in
// the second half of a layer, and the order of everything.
#pragma once

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/delta_mixer.h"
#include "model/blocks/rope.h"

namespace kapitsa::model {

struct HybridConfig {
  AttentionConfig attention;
  DeltaConfig delta;
  RopeConfig rope;
  DecoderConfig decoder;
  std::vector<bool> is_delta;  // one for each layer of the trunk
};

// Refuses attention without an output gate.
HybridConfig read_hybrid(ConfigReader& reader);

class HybridMixers {
public:
  // x: the residual stream (rows, hidden).
  HybridMixers(plan::Plan& plan, const HybridConfig& config, DType kv_dtype, plan::BufferId x);

  // x += mixer(n(x)): binds and records the mixer of the binder's current layer.
  Status record(Binder& binder, int32_t layer);
  // The same where the layer is one of attention, whatever its number.
  Status record_attention(Binder& binder, int32_t layer);

private:
  HybridConfig config_;
  AttentionRecorder attention_;
  DeltaRecorder delta_;
};

}  // namespace kapitsa::model
