// What all decoder-only models have around their layers: embedding, final norm, output matrix
// (which may be tied to the embedding), and the SwiGLU MLP of the dense ones.
#pragma once

#include "model/binder.h"
#include "model/config.h"

namespace kapitsa::model {

inline constexpr TensorName kTokenEmbedding = {"token_embd.weight", "model.embed_tokens.weight"};

// The pre-norms of a layer's halves, whatever the halves are. GGUF names the second one by its
// place in some models.
inline constexpr TensorName kMixerNorm = {"blk.{}.attn_norm.weight",
                                          "model.layers.{}.input_layernorm.weight"};
inline constexpr TensorName kMlpNorm = {"blk.{}.ffn_norm.weight",
                                        "model.layers.{}.post_attention_layernorm.weight"};
inline constexpr TensorName kPostAttentionNorm = {"blk.{}.post_attention_norm.weight", kMlpNorm.hf};

struct DecoderConfig {
  int32_t n_layers = 0;  // of the trunk: GGUF counts multi-token-prediction layers among the blocks
  int32_t n_mtp_layers = 0;
  int32_t n_vocab = 0;
  int32_t context = 0;  // tokens
  float logit_scale = 1.0F;
  float logit_softcap = 0.0F;  // > 0: logits are cap * tanh(logits / cap)
  bool may_be_tied = true;     // without an output matrix, the embedding serves as one
  bool has_output_norm = true;
};

// The rows of the embedding: metadata may leave n_vocab out, and that of GGUF may count only the
// tokens in use.
int32_t read_vocab(ConfigReader& reader, int32_t hidden, const TensorName& embedding);
// Refuses layer_types of config.json with a window, for architectures that see everything.
void refuse_sliding_layers(ConfigReader& reader);
DecoderConfig read_decoder(ConfigReader& reader, int32_t hidden,
                           const TensorName& embedding = kTokenEmbedding);

struct DecoderWeights {
  plan::WeightId embedding;    // (vocab, hidden)
  plan::WeightId output_norm;  // optional (hidden)
  plan::WeightId output;       // (vocab, hidden)
};
DecoderWeights bind_decoder(Binder& binder, const DecoderConfig& config, int32_t hidden);

// Begins the routine "decode", records the embedding, and returns the residual streams x, each of
// which begins as the embedding: (rows, streams * hidden).
plan::BufferId begin_decoder(plan::Plan& plan, const DecoderWeights& weights, int32_t hidden,
                             const plan::Norm& embedding_norm = {}, int32_t streams = 1);
// Final norm and head; adds the logits.
void end_decoder(plan::Plan& plan, const DecoderConfig& config, const DecoderWeights& weights,
                 plan::BufferId x, float norm_eps);

// Where half of a layer that reads x leaves its result: in y where there is one, else added to x.
inline plan::Residual result_of(plan::BufferId x, plan::BufferId y) {
  return {.out = y ? y : x, .accumulate = !y, .post_norm = {}};
}

struct MlpWeights {
  plan::WeightId norm;            // (hidden)
  plan::WeightId gate, up, down;  // (width, hidden) x 2, (hidden, width)
  plan::Norm post_norm = {};      // of the output, before the residual
};
MlpWeights bind_mlp(Binder& binder, int32_t hidden, int32_t width,
                    const TensorName& norm = kMlpNorm);
// x += W_down (silu(W_gate n(x)) * W_up n(x))
void record_mlp(plan::Plan& plan, const MlpWeights& weights, plan::BufferId x, float norm_eps,
                int32_t layer);

}  // namespace kapitsa::model
