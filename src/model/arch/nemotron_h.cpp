// Nemotron-H, Nemotron 3 and 3.5 (arXiv 2504.03624; released configs): one mixer per layer behind a
// plain RMS norm, by a pattern of Mamba-2 (M), attention without positions (*), an MLP (-) of
// squared ReLU without gate, and experts of the same form (E). Router: sigmoid, a bias that only
// chooses, weights divided by their sum and scaled; a shared expert beside it. GGUF tells the
// pattern by which layers have key heads and which a feed-forward width.
#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/experts.h"
#include "model/blocks/mamba_mixer.h"
#include "model/blocks/mtp.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::model {
namespace {

// Released files say backbone where others say model, and mixer in every layer; MLX stacks experts.
const std::vector<Rename> kRenames = {
    {"model.embed_tokens.", "backbone.embeddings."},
    {"model.norm.", "backbone.norm_f."},
    {"model.layers.{}.input_layernorm.", "backbone.layers.{}.norm."},
    {"model.layers.{}.self_attn.", "backbone.layers.{}.mixer."},
    {"model.layers.{}.mlp.shared_expert.", "backbone.layers.{}.mixer.shared_experts."},
    {"model.layers.{}.mlp.switch_mlp.up_proj.", "backbone.layers.{}.mixer.switch_mlp.fc1."},
    {"model.layers.{}.mlp.switch_mlp.down_proj.", "backbone.layers.{}.mixer.switch_mlp.fc2."},
    {"model.layers.{}.mlp.", "backbone.layers.{}.mixer."},
    {"model.", "backbone."},
};
constexpr TensorName kEmbedding = {"token_embd.weight", "backbone.embeddings.weight"};
// The head of 3.5: a layer of attention, then one of experts, which GGUF folds into one block.
constexpr MtpNames kHeadNames = {
    .join = {kMtpNames.join.gguf, "mtp.layers.0.eh_proj.weight"},
    .embedding_norm = {kMtpNames.embedding_norm.gguf, "mtp.layers.0.enorm.weight"},
    .hidden_norm = {kMtpNames.hidden_norm.gguf, "mtp.layers.0.hnorm.weight"},
    .output_norm = {kMtpNames.output_norm.gguf, "mtp.layers.1.final_layernorm.weight"}};
constexpr TensorName kHeadExpertsNorm = {kPostAttentionNorm.gguf, kMixerNorm.hf};
constexpr TensorName kMlpUp = {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"};
constexpr TensorName kMlpDown = {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"};

enum class Mixer : uint8_t { mamba, attention, mlp, experts };

struct Layout {
  std::vector<Mixer> layers;
  int32_t n_kv_heads = 1;
  int32_t mlp_width = 1;

  bool has(Mixer mixer) const {
    return std::find(layers.begin(), layers.end(), mixer) != layers.end();
  }
};

// The value that the entries of `per_layer` have where it is not 0.
int32_t common_count(ConfigReader& reader, const Key& key, const std::vector<int32_t>& per_layer) {
  int32_t common = 0;
  for (const int32_t count : per_layer) {
    if (count == 0) continue;
    if (common != 0 && count != common) {
      reader.refuse(ErrorCode::unsupported, key, fmt::format("0 or {} in each layer", common),
                    std::to_string(count));
    }
    common = count;
  }
  return std::max(common, 1);
}

Layout read_gguf_layout(ConfigReader& reader, Mixer feed_forward) {
  constexpr Key kKvHeads = {"attention.head_count_kv", ""};
  constexpr Key kWidth = {"feed_forward_length", ""};
  constexpr Key kMtpLayers = {"nextn_predict_layers", ""};
  const int32_t n_blocks = reader.count({"block_count", ""}, 1000);
  const int32_t n_mtp = reader.optional_count(kMtpLayers, 16);
  const std::vector<int32_t> kv_heads = reader.counts_per_layer(kKvHeads, n_blocks, 4096);
  const std::vector<int32_t> widths = reader.counts_per_layer(kWidth, n_blocks, 1 << 22);
  if (n_mtp >= n_blocks) {
    reader.refuse(ErrorCode::corrupt_file, kMtpLayers, "fewer layers than block_count",
                  std::to_string(n_mtp));
  }
  Layout layout;
  layout.n_kv_heads = common_count(reader, kKvHeads, kv_heads);
  layout.mlp_width = common_count(reader, kWidth, widths);
  for (size_t i = 0; i + static_cast<size_t>(n_mtp) < kv_heads.size(); ++i) {
    const Mixer mixer = widths[i] != 0     ? feed_forward
                        : kv_heads[i] != 0 ? Mixer::attention
                                           : Mixer::mamba;
    layout.layers.push_back(mixer);
  }
  return layout;
}

// The letter of a layer type; transformers renamed two of them.
char letter_of(std::string_view type) {
  if (type == "mamba" || type == "linear_attention") return 'M';
  if (type == "attention" || type == "full_attention") return '*';
  if (type == "mlp") return '-';
  return type == "moe" ? 'E' : '?';
}

Layout read_hf_layout(ConfigReader& reader) {
  constexpr Key kPattern = {"", "hybrid_override_pattern"};
  constexpr Key kTypes = {"", "layers_block_type"};
  std::string pattern = reader.text_or(kPattern, "");
  const Key& key = pattern.empty() ? kTypes : kPattern;
  if (pattern.empty()) {
    for (const std::string_view type : reader.texts(kTypes))
      pattern.push_back(letter_of(type));
  }
  constexpr std::string_view kLetters = "M*-E";
  if (pattern.empty() || pattern.find_first_not_of(kLetters) != std::string::npos) {
    reader.refuse(ErrorCode::unsupported, key, "layers of Mamba, attention, MLP or experts",
                  pattern.empty() ? "none" : "another (" + pattern + ")");
    return {};
  }
  Layout layout;
  for (const char letter : pattern)
    layout.layers.push_back(static_cast<Mixer>(kLetters.find(letter)));
  layout.n_kv_heads = reader.count({"", "num_key_value_heads"}, 4096);
  if (layout.has(Mixer::mlp)) layout.mlp_width = reader.count({"", "intermediate_size"}, 1 << 22);
  return layout;
}

AttentionConfig read_attention_without_rope(ConfigReader& reader, int32_t hidden,
                                            int32_t n_kv_heads, float norm_eps) {
  constexpr Key kHeads = {"attention.head_count", "num_attention_heads"};
  AttentionConfig config;
  config.hidden = hidden;
  config.norm_eps = norm_eps;
  config.n_heads = reader.count(kHeads, 4096);
  config.n_kv_heads = n_kv_heads;
  config.head_dim = reader.count({"attention.key_length", "head_dim"}, 4096);
  if (config.n_heads % n_kv_heads != 0) {
    reader.refuse(ErrorCode::corrupt_file, kHeads,
                  fmt::format("a multiple of {} key heads", n_kv_heads),
                  std::to_string(config.n_heads));
  }
  return config;
}

ExpertsConfig read_squared_relu_experts(ConfigReader& reader, int32_t hidden) {
  constexpr Key kShared = {"expert_shared_feed_forward_length",
                           "moe_shared_expert_intermediate_size"};
  ExpertsConfig config;
  config.hidden = hidden;
  config.width = reader.count({"expert_feed_forward_length", "moe_intermediate_size"}, 1 << 20);
  config.shared_width = reader.count(kShared, 1 << 22);
  config.shared_mix = false;
  config.norm = kMixerNorm;
  config.activation = plan::Activation::relu_squared;
  config.gated = false;
  config.selection_bias = true;
  plan::Router& router = config.router;
  router.score = plan::RouterScore::sigmoid;
  router.n_experts = reader.count({"expert_count", "n_routed_experts"}, 65536);
  router.top_k = reader.count({"expert_used_count", "num_experts_per_tok"}, router.n_experts);
  router.renormalise = reader.flag_or({"expert_weights_norm", "norm_topk_prob"}, true);
  router.scale =
      reader.number_or({"expert_weights_scale", "routed_scaling_factor"}, 1.0, 1e-6, 1e6);
  read_router_groups(reader, router);
  return config;
}

// Siblings that need what this file does not record.
void refuse_siblings(ConfigReader& reader, const Layout& layout) {
  constexpr Key kLatent = {"moe_latent_size", "moe_latent_size"};  // Nemotron 3 Super
  if (const int32_t latent = reader.optional_count(kLatent, 1 << 20); latent != 0) {
    reader.refuse(ErrorCode::unsupported, kLatent, "0 (experts of the full width)",
                  std::to_string(latent));
  }
  for (const char* name : {"mlp_bias", "use_bias", "mamba_proj_bias"}) {
    const Key key = {"", name};
    if (reader.flag_or(key, false)) {
      reader.refuse(ErrorCode::unsupported, key, "false", "true");
    }
  }
  constexpr Key kShared = {"expert_shared_count", "n_shared_experts"};
  const int32_t n_shared = layout.has(Mixer::experts) ? reader.count_or(kShared, 1, 1000) : 1;
  if (n_shared != 1) {
    reader.refuse(ErrorCode::unsupported, kShared, "1", std::to_string(n_shared));
  }
  constexpr Key kActivation = {"", "mlp_hidden_act"};
  constexpr Key kMambaActivation = {"", "mamba_hidden_act"};
  reader.expect(kActivation, {"relu2"});
  reader.expect(kMambaActivation, {"silu", "swish"});
}

// Refuses heads of other layers than those above.
void refuse_other_heads(ConfigReader& reader) {
  constexpr Key kHeads = {"nextn_predict_layers", "num_nextn_predict_layers"};
  constexpr Key kPattern = {"", "mtp_hybrid_override_pattern"};
  constexpr Key kTypes = {"", "mtp_layers_block_type"};
  const int32_t n_heads = reader.optional_count(kHeads, 16);
  if (n_heads == 0) return;
  if (n_heads != 1) {
    reader.refuse(ErrorCode::unsupported, kHeads, "0 or 1", std::to_string(n_heads));
  }
  if (reader.is_gguf()) return;
  std::string pattern = reader.text_or(kPattern, "");
  const Key& key = pattern.empty() ? kTypes : kPattern;
  if (pattern.empty() && reader.has(kTypes)) {
    for (const std::string_view type : reader.texts(kTypes))
      pattern.push_back(letter_of(type));
  }
  if (!pattern.empty() && pattern != "*E") {
    reader.refuse(ErrorCode::unsupported, key, "*E (attention, experts)", pattern);
  }
}

struct Config {
  Layout layout;
  DecoderConfig decoder;
  int32_t hidden = 0;
  float eps = 0.0F;
  MambaConfig mamba;
  AttentionConfig attention;
  ExpertsConfig experts;
};

Config read_config(ConfigReader& reader, bool gguf_has_experts) {
  Config c;
  c.layout = reader.is_gguf()
                 ? read_gguf_layout(reader, gguf_has_experts ? Mixer::experts : Mixer::mlp)
                 : read_hf_layout(reader);
  c.hidden = reader.count({"embedding_length", "hidden_size"}, 1 << 20);
  constexpr Key kRmsEps = {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"};
  constexpr Key kEps = {"attention.layer_norm_epsilon", "layer_norm_epsilon"};  // converters differ
  c.eps = reader.number(reader.has(kRmsEps) ? kRmsEps : kEps, 0.0, 1.0);
  c.decoder.n_layers = static_cast<int32_t>(c.layout.layers.size());
  c.decoder.n_vocab = read_vocab(reader, c.hidden, kEmbedding);
  c.decoder.context = reader.count({"context_length", "max_position_embeddings"}, 1 << 28);
  c.decoder.may_be_tied = reader.flag_or({"", "tie_word_embeddings"}, reader.is_gguf());
  if (c.layout.has(Mixer::mamba)) c.mamba = read_mamba(reader, c.hidden, c.eps);
  if (c.layout.has(Mixer::attention)) {
    c.attention = read_attention_without_rope(reader, c.hidden, c.layout.n_kv_heads, c.eps);
  }
  if (c.layout.has(Mixer::experts)) c.experts = read_squared_relu_experts(reader, c.hidden);
  refuse_siblings(reader, c.layout);
  return c;
}

// x += W_down relu(W_up n(x))^2
void record_squared_relu_mlp(Binder& b, plan::Plan& p, const Config& c, plan::BufferId x,
                             int32_t layer) {
  const int32_t width = c.layout.mlp_width;
  const plan::Norm norm = {true, b.norm(kMixerNorm, c.hidden), c.eps};
  p.add(plan::Mlp{.x = x,
                  .norm = norm,
                  .gate = {},
                  .up = b.matrix(kMlpUp, width, c.hidden),
                  .down = b.matrix(kMlpDown, c.hidden, width),
                  .activation = plan::Activation::relu_squared,
                  .residual = {.out = x}},
        std::to_string(layer) + ".mlp");
}

// What the layers of each kind share.
struct Recorders {
  Recorders(plan::Plan& p, const Config& c, DType kv_dtype, plan::BufferId x) {
    if (c.layout.has(Mixer::mamba)) mamba.emplace(p, c.mamba, x);
    if (c.layout.has(Mixer::attention)) {
      attention.emplace(p, c.attention, plan::Rope{}, kv_dtype, x);
    }
    if (c.layout.has(Mixer::experts)) experts.emplace(p, c.experts, x, c.eps);
  }

  std::optional<MambaRecorder> mamba;
  std::optional<AttentionRecorder> attention;
  std::optional<ExpertsRecorder> experts;
};

// f = W [Norm(embedding) ; Norm(hidden)]; f += attention(n(f)); f += experts(n(f)); hidden = n(f)
Status record_head(Binder& b, plan::Plan& p, const Config& c, const DecoderWeights& outer,
                   Recorders& recorders, plan::BufferId x, bool is_gguf) {
  MtpRecorder head(p, outer, x, c.eps);
  const MtpWeights mtp = bind_mtp(b, c.decoder, outer, c.hidden, kHeadNames);
  const AttentionWeights attention = bind_attention(b, c.attention, /*with_head_norms=*/false);
  b.set_mtp_layer(c.decoder.n_layers, is_gguf ? 0 : 1);
  ExpertsConfig experts_config = c.experts;
  experts_config.norm = kHeadExpertsNorm;
  const ExpertsWeights experts = bind_experts(b, experts_config);
  KAPITSA_TRY(b.status());
  head.begin(mtp);
  recorders.attention->record(attention, c.decoder.n_layers);
  recorders.experts->record(experts, c.decoder.n_layers);
  head.end(mtp);
  return {};
}

Result<Model> load_config(ConfigReader& reader, const Config& c, const RecordOptions& options) {
  Model model;
  model.architecture = "nemotron_h";
  model.n_layers = c.decoder.n_layers;
  model.context_trained = c.decoder.context;
  Binder b(reader.file(), model, kRenames);
  const DecoderWeights outer = bind_decoder(b, c.decoder, c.hidden);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, c.hidden);  // (rows, hidden)
  Recorders recorders(p, c, options.kv_dtype, x);
  for (int32_t i = 0; i < c.decoder.n_layers; ++i) {
    b.set_layer(i);
    switch (c.layout.layers[static_cast<size_t>(i)]) {
    case Mixer::mamba: recorders.mamba->record(bind_mamba(b, c.mamba), i); break;
    case Mixer::attention:
      recorders.attention->record(bind_attention(b, c.attention, /*with_head_norms=*/false), i);
      break;
    case Mixer::mlp: record_squared_relu_mlp(b, p, c, x, i); break;
    case Mixer::experts: recorders.experts->record(bind_experts(b, c.experts), i); break;
    }
    KAPITSA_TRY(b.status());
  }
  end_decoder(p, c.decoder, outer, x, c.eps);

  const bool has_parts = recorders.attention && recorders.experts;
  if (options.mtp && has_parts && has_mtp(b, c.decoder, kHeadNames)) {
    KAPITSA_TRY(record_head(b, p, c, outer, recorders, x, reader.is_gguf()));
  }
  return model;
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  KAPITSA_ASSIGN(const std::string gguf_name, file.string_or("general.architecture", ""));
  ConfigReader reader(file, gguf_name);
  const Config config = read_config(reader, gguf_name == "nemotron_h_moe");
  if (options.mtp) refuse_other_heads(reader);
  KAPITSA_TRY(reader.status());
  return load_config(reader, config, options);
}

}  // namespace

extern const ArchDef arch_nemotron_h;
const ArchDef arch_nemotron_h = {.name = "nemotron_h",
                                 .gguf_names = {"nemotron_h", "nemotron_h_moe"},
                                 .model_types = {"nemotron_h"},
                                 .load = load};

}  // namespace kapitsa::model
