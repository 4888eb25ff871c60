// Grouped-query attention as most decoders have it: pre-norm, q, k and v projections, optional norm
// of each q and k head, rope, softmax over the cache, output projection onto the residual.
#pragma once

#include "model/binder.h"
#include "model/blocks/decoder.h"
#include "model/config.h"

namespace kapitsa::model {

struct AttentionConfig {
  int32_t hidden = 0;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  float norm_eps = 0.0F;
  int32_t window = 0;  // > 0: each token sees the last `window` positions only
  // Gated attention (Qiu et al., arXiv 2505.06708): W_q gives [q | gate] of each head, and the
  // heads' results are multiplied by sigmoid(gate).
  bool output_gate = false;
  plan::Activation gate_activation = plan::Activation::sigmoid;  // of AttentionWeights::gate
  bool weightless_head_norms = false;  // each q and k head is normed even without q_norm, k_norm
  bool has_biases = false;             // the file says that all projections have one
  float q_scale = 1.0F;                // of q after its norm
  float post_norm_eps = 0.0F;          // of AttentionWeights::post_norm
  TensorName norm = kMixerNorm;

  int32_t q_width() const { return n_heads * head_dim; }
  int32_t kv_width() const { return n_kv_heads * head_dim; }
  int32_t q_rows() const { return output_gate ? 2 * q_width() : q_width(); }
};

struct AttentionWeights {
  plan::WeightId norm;        // optional (hidden)
  plan::WeightId q, k, v, o;  // (q_rows, hidden), (kv_width, hidden) x 2, (hidden, q_width)
  plan::WeightId q_bias, k_bias, v_bias, o_bias;  // optional
  plan::WeightId q_norm, k_norm;                  // optional (head_dim)
  // Optional: multiplies the heads' results by f(W_gate n(x)). (q_width or n_heads, hidden)
  plan::WeightId gate;
  plan::WeightId post_norm;  // optional (hidden): of the output, before the residual
};

// Sizes that every such model has, and their keys. Refuses heads that do not divide.
AttentionConfig read_attention(ConfigReader& reader);

// Which layers see only a window: layer_types of config.json, attention.sliding_window_pattern of
// GGUF; every layer but each fourth, from layer `first_full` on, where neither is there.
std::vector<bool> read_sliding_layers(ConfigReader& reader, int32_t n_layers, int32_t first_full);

// The binder's current layer. Biases are bound where the file has them; with_head_norms: q_norm and
// k_norm are required.
AttentionWeights bind_attention(Binder& binder, const AttentionConfig& config,
                                bool with_head_norms);

// The blocks of the cache that a row attends to, where it does not attend to all.
struct BlockSelection {
  plan::BufferId blocks;   // i32 (rows, most blocks), -1 = none; absent: all
  int32_t block_size = 0;  // tokens
};

// What the layers of one kind share. Recorders of several kinds in one plan share buffers.
class AttentionRecorder {
public:
  // x: the residual stream (rows, hidden); y: see result_of().
  AttentionRecorder(plan::Plan& plan, const AttentionConfig& config, plan::Rope rope,
                    DType kv_dtype, plan::BufferId x, plan::BufferId y = {});

  // x += W_o attention(rope(norm(W_q n(x))), rope(norm(W_k n(x))), W_v n(x))
  void record(const AttentionWeights& weights, int32_t layer, const BlockSelection& selection = {});

private:
  plan::Heads gate(const AttentionWeights& weights);

  plan::Plan& plan_;
  AttentionConfig config_;
  plan::Rope rope_;
  DType kv_dtype_;
  plan::BufferId x_;
  plan::Residual result_;
  plan::BufferId q_;            // (rows, heads, head_dim), with gate (rows, heads, 2, head_dim)
  plan::BufferId k_, v_, out_;  // (rows, heads, head_dim)
};

}  // namespace kapitsa::model
