// LLaDA 2 mixture of experts (released config and weights; inclusionAI): a decoder that writes by
// masked block diffusion. Attention with q, k and v in one matrix, an RMS norm over each q and k
// head, and rope on a part of the head. The first layers have a SwiGLU MLP, the others experts: a
// sigmoid router with a bias that only chooses, from the best groups of experts, weights divided by
// their sum and scaled, and a shared expert.
#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/experts.h"
#include "model/blocks/rope.h"

namespace kapitsa::model {
namespace {

constexpr TensorName kQkv = {"", "model.layers.{}.attention.query_key_value.weight"};
constexpr TensorName kO = {"", "model.layers.{}.attention.dense.weight"};
constexpr TensorName kQNorm = {"", "model.layers.{}.attention.query_layernorm.weight"};
constexpr TensorName kKNorm = {"", "model.layers.{}.attention.key_layernorm.weight"};

// Blocks and mask of the released models, whose files need not name them.
constexpr MaskedDefaults kReleased = {.block = 32, .mask_token = 156895, .threshold = 0.95};

std::vector<Rename> renames() {
  return {
      {"model.embed_tokens.", "model.word_embeddings."},
      {"model.layers.{}.mlp.gate.e_score_correction_bias", "model.layers.{}.mlp.gate.expert_bias"},
      {"model.layers.{}.mlp.shared_expert.", "model.layers.{}.mlp.shared_experts."}};
}

struct Config {
  AttentionConfig attention;
  DecoderConfig decoder;
  ExpertsConfig experts;
  RopeConfig rope;
  int32_t n_dense = 0;  // first layers that have an MLP
  int32_t mlp_width = 0;
};

ExpertsConfig read_grouped_experts(ConfigReader& reader, int32_t hidden) {
  ExpertsConfig config = read_experts(reader, hidden);
  config.shared_width = config.width * reader.optional_count({"", "num_shared_experts"}, 64);
  config.shared_mix = false;
  config.selection_bias = true;
  plan::Router& router = config.router;
  router.score = plan::RouterScore::sigmoid;
  router.renormalise = reader.flag_or({"", "norm_topk_prob"}, true);
  router.scale = reader.number_or({"", "routed_scaling_factor"}, 1.0, 1e-6, 1e6);
  read_router_groups(reader, router);
  return config;
}

// Siblings that need what this file does not record.
void refuse_siblings(ConfigReader& reader) {
  constexpr Key kScore = {"", "score_function"};
  const std::string score = reader.text_or(kScore, "sigmoid");
  if (score != "sigmoid") reader.refuse(ErrorCode::unsupported, kScore, "sigmoid", score);
  for (const char* name : {"use_qkv_bias", "use_bias"}) {
    if (reader.flag_or({"", name}, false))
      reader.refuse(ErrorCode::unsupported, {"", name}, "false", "true");
  }
  if (!reader.flag_or({"", "use_qk_norm"}, true))
    reader.refuse(ErrorCode::unsupported, {"", "use_qk_norm"}, "true", "false");
}

Config read_config(ConfigReader& reader) {
  Config c;
  c.attention = read_attention(reader);
  c.decoder = read_decoder(reader, c.attention.hidden, {"", "model.word_embeddings.weight"});
  c.experts = read_grouped_experts(reader, c.attention.hidden);
  c.rope = read_rope(reader, c.attention.head_dim, 0.5);
  c.n_dense = reader.optional_count({"", "first_k_dense_replace"}, c.decoder.n_layers);
  if (c.n_dense > 0) c.mlp_width = reader.count({"", "intermediate_size"}, 1 << 22);
  refuse_siblings(reader);
  return c;
}

// The binder's current layer.
AttentionWeights bind_joined_attention(Binder& b, const AttentionConfig& c) {
  const int64_t q = c.q_width();
  const int64_t kv = c.kv_width();
  const auto part = [&](int64_t first, int64_t n) {
    return b.matrix_rows(kQkv, q + 2 * kv, c.hidden, first, n);
  };
  AttentionWeights w;
  w.norm = b.norm(kMixerNorm, c.hidden);
  w.q = part(0, q);
  w.k = part(q, kv);
  w.v = part(q + kv, kv);
  w.o = b.matrix(kO, c.hidden, q);
  w.q_norm = b.norm(kQNorm, c.head_dim);
  w.k_norm = b.norm(kKNorm, c.head_dim);
  return w;
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  KAPITSA_TRY(refuse_mlx(file, "llada2_moe"));
  KAPITSA_ASSIGN(const Diffusion diffusion, read_masked_diffusion(file, kReleased));
  ConfigReader reader(file, "llada2_moe");
  const Config c = read_config(reader);
  KAPITSA_TRY(reader.status());
  const int32_t hidden = c.attention.hidden;
  const float eps = c.attention.norm_eps;

  Model model;
  model.architecture = "llada2_moe";
  model.n_layers = c.decoder.n_layers;
  model.context_trained = c.decoder.context;
  model.diffusion = diffusion;
  Binder b(file, model, renames());
  const DecoderWeights outer = bind_decoder(b, c.decoder, hidden);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  AttentionRecorder attention(p, c.attention, make_rope(c.rope, plan::RopePairs::half),
                              options.kv_dtype, x);
  ExpertsRecorder experts(p, c.experts, x, eps);
  for (int32_t i = 0; i < c.decoder.n_layers; ++i) {
    b.set_layer(i);
    const AttentionWeights attention_weights = bind_joined_attention(b, c.attention);
    KAPITSA_TRY(b.status());
    attention.record(attention_weights, i);
    if (i < c.n_dense) {
      record_mlp(p, bind_mlp(b, hidden, c.mlp_width), x, eps, i);
    } else {
      experts.record(bind_experts(b, c.experts), i);
    }
    KAPITSA_TRY(b.status());
  }
  end_decoder(p, c.decoder, outer, x, eps);
  return model;
}

}  // namespace

// No GGUF layout of it is known.
extern const ArchDef arch_llada2_moe;
const ArchDef arch_llada2_moe = {
    .name = "llada2_moe", .gguf_names = {}, .model_types = {"llada2_moe"}, .load = load};

}  // namespace kapitsa::model
