// Muse Glimmer, the text model (released config and transformers, modeling_muse_glimmer): sandwich
// norms, q and k heads normed without weights, q scaled, results gated elementwise; three layers
// with a sliding window and rope for each layer of full attention without positions; a SwiGLU MLP;
// normed embeddings; scaled and soft-capped logits. Four norms of a layer are stored less one but
// in GGUF, which also permutes q and k rows for adjacent rope pairs and has q's scale as a norm
// weight.
#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/rope.h"

namespace kapitsa::model {
namespace {

constexpr TensorName kGate = {"blk.{}.attn_gate.weight",
                              "model.layers.{}.self_attn.gate_proj.weight"};
constexpr TensorName kAttentionPostNorm = {"blk.{}.post_attention_norm.weight",
                                           "model.layers.{}.post_attention_layernorm.weight"};
constexpr TensorName kMlpPreNorm = {"blk.{}.ffn_norm.weight",
                                    "model.layers.{}.pre_feedforward_layernorm.weight"};
constexpr TensorName kMlpPostNorm = {"blk.{}.post_ffw_norm.weight",
                                     "model.layers.{}.post_feedforward_layernorm.weight"};

struct Config {
  AttentionConfig attention;  // of layers with a sliding window
  AttentionConfig full_attention;
  DecoderConfig decoder;
  RopeConfig rope;
  std::vector<bool> sliding;  // by layer
  int32_t mlp_width = 0;
  float post_norm_eps = 0.0F;
};

// layer_rope_theta: 0 where a layer has no rope, which has to be where it has no window.
void check_rope_by_layer(ConfigReader& reader, const std::vector<bool>& sliding) {
  constexpr Key kThetas = {"", "layer_rope_theta"};
  if (!reader.has(kThetas)) return;
  const auto thetas = reader.file().numbers(reader.name(kThetas));
  bool fits = thetas.ok() && thetas->size() == sliding.size();
  for (size_t i = 0; fits && i < sliding.size(); ++i)
    fits = ((*thetas)[i] != 0.0) == sliding[i];
  if (!fits) {
    reader.refuse(ErrorCode::unsupported, kThetas, "0 in layers of full attention and only there",
                  "other values");
  }
}

Config read_config(ConfigReader& reader) {
  Config c;
  c.attention = read_attention(reader);
  c.decoder = read_decoder(reader, c.attention.hidden);
  c.decoder.logit_scale =
      reader.number_or({"logit_scale", "output_multiplier"}, 0.19611613513818404, 1e-6, 1e6);
  c.decoder.logit_softcap =
      reader.number_or({"final_logit_softcapping", "final_logit_softcapping"}, 20.0, 0.0, 1e6);
  c.mlp_width = reader.count({"feed_forward_length", "intermediate_size"}, 1 << 22);
  c.post_norm_eps = reader.number_or({"", "post_norm_eps"}, 1e-8, 0.0, 1.0);
  c.attention.post_norm_eps = c.post_norm_eps;
  if (!reader.is_gguf()) {
    c.attention.weightless_head_norms = true;
    c.attention.q_scale = reader.number_or({"", "qk_scale_factor"}, 3.87, 1e-6, 1e6);
  }
  c.full_attention = c.attention;
  c.attention.window = reader.count({"attention.sliding_window", "sliding_window"}, 1 << 28);
  c.rope = read_rope(reader, c.attention.head_dim);
  constexpr Key kSlidingTheta = {"rope.freq_base_swa", ""};
  if (reader.has(kSlidingTheta)) c.rope.theta = reader.number(kSlidingTheta, 1.0, 1e12);
  c.sliding = read_sliding_layers(reader, c.decoder.n_layers, (c.decoder.n_layers - 1) % 4);
  check_rope_by_layer(reader, c.sliding);
  constexpr Key kActivation = {"", "hidden_activation"};
  reader.expect(kActivation, {"silu", "swish"});
  return c;
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "muse-glimmer", text_config_prefix(file));
  const Config c = read_config(reader);
  KAPITSA_TRY(reader.status());
  const int32_t hidden = c.attention.hidden;
  const float eps = c.attention.norm_eps;

  Model model;
  model.architecture = "muse_glimmer";
  model.n_layers = c.decoder.n_layers;
  model.context_trained = c.decoder.context;
  Binder b(file, model);
  const DecoderWeights outer = bind_decoder(b, c.decoder, hidden);
  if (!reader.is_gguf()) b.set_norm_offset(1.0F);  // from here on: the final norm is a plain one
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::Norm embedding_norm = {.present = true, .weight = {}, .eps = eps};
  const plan::BufferId x = begin_decoder(p, outer, hidden, embedding_norm);  // (rows, hidden)
  const auto pairs = reader.is_gguf() ? plan::RopePairs::adjacent : plan::RopePairs::half;
  AttentionRecorder sliding(p, c.attention, make_rope(c.rope, pairs), options.kv_dtype, x);
  AttentionRecorder full(p, c.full_attention, plan::Rope{}, options.kv_dtype, x);
  for (int32_t i = 0; i < c.decoder.n_layers; ++i) {
    b.set_layer(i);
    AttentionWeights attention =
        bind_attention(b, c.attention, /*with_head_norms=*/reader.is_gguf());
    attention.gate = b.matrix(kGate, c.attention.q_width(), hidden);
    attention.post_norm = b.norm(kAttentionPostNorm, hidden);
    MlpWeights mlp = bind_mlp(b, hidden, c.mlp_width, kMlpPreNorm);
    mlp.post_norm = {true, b.norm(kMlpPostNorm, hidden), c.post_norm_eps};
    KAPITSA_TRY(b.status());
    (c.sliding[static_cast<size_t>(i)] ? sliding : full).record(attention, i);
    record_mlp(p, mlp, x, eps, i);
  }
  end_decoder(p, c.decoder, outer, x, eps);
  return model;
}

}  // namespace

extern const ArchDef arch_muse_glimmer;
const ArchDef arch_muse_glimmer = {.name = "muse_glimmer",
                                   .gguf_names = {"muse-glimmer"},
                                   .model_types = {"muse_glimmer", "muse_glimmer_text"},
                                   .load = load};

}  // namespace kapitsa::model
