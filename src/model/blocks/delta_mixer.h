// Gated DeltaNet in place of attention (Yang et al., arXiv 2412.06464, as Qwen3-Next and Qwen3.5
// use it): projections, short convolution, gated delta rule on one state per value head, gated
// norm, output projection onto the residual. Files differ in how they join the projections, in the
// order of value heads and in what they store of the decay; the recorder hides all of it.
#pragma once

#include "model/binder.h"
#include "model/blocks/decoder.h"
#include "model/config.h"

namespace kapitsa::model {

struct DeltaConfig {
  int32_t hidden = 0;
  int32_t n_k = 0, n_v = 0;  // key and value heads
  int32_t dk = 0, dv = 0;    // elements of one
  int32_t taps = 0;          // of the convolution
  float norm_eps = 0.0F;
  plan::Activation gate = plan::Activation::silu;
  plan::HeadMap head_map = plan::HeadMap::grouped;
  bool log_decay = true;  // the file stores A_log, else -exp(A_log)
  TensorName norm = kMixerNorm;

  int32_t key_width() const { return n_k * dk; }
  int32_t value_width() const { return n_v * dv; }
  int32_t conv_width() const { return 2 * key_width() + value_width(); }
};

// Sizes and their keys; refuses what does not divide. The head map is left to the caller.
DeltaConfig read_delta(ConfigReader& reader, int32_t hidden, float norm_eps);

// Which layers have this mixer, one entry for each; the others have attention, which layer_types
// calls full_attention or `attention`.
std::vector<bool> read_delta_layers(ConfigReader& reader, int32_t n_layers,
                                    std::string_view attention = "full_attention");

// What a file's one-plus norms lack: 1 in Hugging Face checkpoints, 0 where a converter has added
// it. MLX files differ, so the layout of the convolution tells, which is converted with the norms.
float one_plus_norm_offset(const weights::Checkpoint& file);

struct DeltaWeights {
  plan::WeightId norm;  // optional (hidden)
  plan::WeightId qkv;   // (conv_width, hidden), rows q | k | v
  plan::WeightId z;     // (value_width, hidden)
  plan::WeightId b, a;  // (n_v, hidden)
  // In place of them, rows by key head: its q | k | v | z, and its b | a.
  plan::WeightId qkvz;           // (conv_width + value_width, hidden)
  plan::WeightId ba;             // (2 * n_v, hidden)
  plan::WeightId conv;           // (conv_width, taps)
  plan::WeightId a_coefficient;  // (n_v)
  plan::WeightId dt_bias;        // (n_v)
  plan::WeightId out_norm;       // (dv)
  plan::WeightId out;            // (hidden, value_width)
};

// The binder's current layer.
DeltaWeights bind_delta(Binder& binder, const DeltaConfig& config);

class DeltaRecorder {
public:
  // x: the residual stream (rows, hidden); y: see result_of().
  DeltaRecorder(plan::Plan& plan, const DeltaConfig& config, plan::BufferId x,
                plan::BufferId y = {});

  // x += W_o mix(W_qkv n(x), W_z n(x), W_a n(x), W_b n(x))
  void record(const DeltaWeights& weights, int32_t layer);

private:
  void record_inputs(const DeltaWeights& weights, const std::string& at);
  plan::Recurrent add_memory(const std::string& name, int64_t state_width, int64_t tape_width);

  plan::Plan& plan_;
  DeltaConfig config_;
  plan::BufferId x_;
  plan::Residual result_;
  plan::BufferId qkv_;    // (rows, conv_width)
  plan::BufferId z_;      // (rows, value_width)
  plan::BufferId b_, a_;  // (rows, n_v)
  plan::BufferId out_;    // (rows, value_width)
};

}  // namespace kapitsa::model
