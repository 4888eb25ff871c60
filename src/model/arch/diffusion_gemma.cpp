// DiffusionGemma, the text model (released config; transformers, modeling_diffusion_gemma): one set
// of weights in two roles. The encoder reads tokens causally and fills the cache; the decoder
// computes a canvas of tokens that see the cache and each other, from the canvas and what the step
// before thought of it. Sandwich norms; q and k heads normed with weights, v heads without; layers
// of full attention have heads of their own, their keys serve as values too; in every layer a
// GeGLU MLP beside routed GeGLU experts, each with norms of its own; a factor at the end of a layer
// is all that differs between the roles. The router reads the plain residual stream.
#include "model/binder.h"
#include "model/blocks/decoder.h"
#include "model/blocks/rope.h"
#include "model/config.h"

#include <fmt/format.h>

#include <cmath>

namespace kapitsa::model {
namespace {

// Names are those after "model.decoder."; only the encoder's factors are elsewhere.
std::vector<Rename> renames() {
  return {{"model.encoder.", "model.encoder."}, {"model.", "model.decoder."}};
}

struct LayerConfig {
  bool sliding = false;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
};

struct Config {
  int32_t hidden = 0;
  int32_t n_heads = 0;
  int32_t window = 0;  // of sliding layers
  float eps = 0.0F;
  std::vector<LayerConfig> layers;
  RopeConfig full_rope, sliding_rope;
  DecoderConfig decoder;
  int32_t mlp_width = 0;
  int32_t expert_width = 0;
  plan::Router router;
  int32_t canvas = 0;
};

std::vector<LayerConfig> read_layers(ConfigReader& reader, const Config& c) {
  constexpr Key kTypes = {"", "layer_types"};
  const int32_t head_dim = reader.count({"", "head_dim"}, 4096);
  const int32_t kv_heads = reader.count({"", "num_key_value_heads"}, 4096);
  const int32_t full_dim = reader.count_or({"", "global_head_dim"}, 512, 4096);
  const int32_t full_kv_heads = reader.count_or({"", "num_global_key_value_heads"}, kv_heads, 4096);
  std::vector<LayerConfig> layers;
  for (const std::string_view type : reader.texts(kTypes)) {
    LayerConfig layer{type == "sliding_attention", kv_heads, head_dim};
    if (!layer.sliding) {
      const std::string at = fmt::format("per_layer_config.{}.", layers.size());
      const std::string own_dim = at + "head_dim";
      const std::string own_kv_heads = at + "num_key_value_heads";
      layer.head_dim = reader.count_or({"", own_dim}, full_dim, 4096);
      layer.n_kv_heads = reader.count_or({"", own_kv_heads}, full_kv_heads, 4096);
      if (type != "full_attention") {
        reader.refuse(ErrorCode::unsupported, kTypes, "sliding_attention or full_attention", type);
      }
    }
    if (c.n_heads % layer.n_kv_heads != 0) {
      reader.refuse(ErrorCode::corrupt_file, {"", "num_key_value_heads"},
                    fmt::format("a divisor of {}", c.n_heads), std::to_string(layer.n_kv_heads));
    }
    layers.push_back(layer);
  }
  if (layers.size() != static_cast<size_t>(c.decoder.n_layers)) {
    reader.refuse(ErrorCode::corrupt_file, kTypes, fmt::format("{} layers", c.decoder.n_layers),
                  std::to_string(layers.size()));
  }
  return layers;
}

// Siblings that need what this file does not record.
void refuse_siblings(ConfigReader& reader) {
  constexpr Key kActivation = {"", "hidden_activation"};
  constexpr Key kBidirectional = {"", "use_bidirectional_attention"};
  const std::string activation = reader.text_or(kActivation, "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh")
    reader.refuse(ErrorCode::unsupported, kActivation, "gelu_pytorch_tanh", activation);
  if (reader.text_or(kBidirectional, "vision") != "vision")
    reader.refuse(ErrorCode::unsupported, kBidirectional, "vision or none", "another value");
  if (reader.flag_or({"", "attention_bias"}, false))
    reader.refuse(ErrorCode::unsupported, {"", "attention_bias"}, "false", "true");
}

Config read_config(ConfigReader& reader) {
  Config c;
  c.hidden = reader.count({"", "hidden_size"}, 1 << 20);
  c.n_heads = reader.count({"", "num_attention_heads"}, 4096);
  c.window = reader.count({"", "sliding_window"}, 1 << 28);
  c.eps = reader.number({"", "rms_norm_eps"}, 0.0, 1.0);
  c.decoder = read_decoder(reader, c.hidden, {"", "model.decoder.embed_tokens.weight"});
  c.decoder.logit_softcap = reader.number_or({"", "final_logit_softcapping"}, 30.0, 0.0, 1e6);
  c.layers = read_layers(reader, c);
  for (const LayerConfig& layer : c.layers) {
    RopeConfig& rope = layer.sliding ? c.sliding_rope : c.full_rope;
    rope = read_rope(reader, layer.head_dim, 1.0,
                     layer.sliding ? RopeLayers::sliding : RopeLayers::full);
  }
  c.mlp_width = reader.count({"", "intermediate_size"}, 1 << 22);
  c.expert_width = reader.count({"", "moe_intermediate_size"}, 1 << 20);
  c.router.score = plan::RouterScore::softmax_selected;
  c.router.n_experts = reader.count({"", "num_experts"}, 65536);
  c.router.top_k = reader.count({"", "top_k_experts"}, c.router.n_experts);
  refuse_siblings(reader);
  return c;
}

// The canvas, and how it is denoised: generation_config.json, or what transformers takes.
CanvasDiffusion read_rule(ConfigReader& reader, Config& c) {
  constexpr int32_t kLongest = 256;  // rows of logits that a pass holds
  CanvasDiffusion rule;
  c.canvas = reader.count({"", "canvas_length"}, kLongest);
  rule.steps = reader.count_or({"", "generation_config.max_denoising_steps"}, rule.steps, 1000);
  const auto number = [&](std::string_view key, double fallback, double low) {
    return static_cast<double>(reader.number_or({"", key}, fallback, low, 1e6));
  };
  rule.temperature_low = number("generation_config.t_min", rule.temperature_low, 1e-3);
  rule.temperature_high = number("generation_config.t_max", rule.temperature_high, 1e-3);
  rule.entropy_bound =
      number("generation_config.sampler_config.entropy_bound", rule.entropy_bound, 0.0);
  rule.confident_entropy =
      number("generation_config.confidence_threshold", rule.confident_entropy, 0.0);
  constexpr Key kStable = {"", "generation_config.stability_threshold"};
  if (reader.has(kStable)) rule.stable_steps = reader.optional_count(kStable, 1000);
  return rule;
}

struct LayerWeights {
  plan::WeightId attention_norm, q, k, v, o, q_norm, k_norm, attention_post_norm;
  plan::WeightId mlp_norm, mlp_gate, mlp_up, mlp_down, mlp_post_norm;
  plan::WeightId experts_norm, gate, up, down, experts_post_norm;
  plan::WeightId router_norm, router, expert_scale;
  plan::WeightId post_norm;
  float decoder_factor = 1.0F, encoder_factor = 1.0F;
};

// The binder's current layer.
LayerWeights bind_layer(Binder& b, const Config& c, const LayerConfig& layer) {
  const int32_t hidden = c.hidden;
  const int64_t q_width = int64_t{c.n_heads} * layer.head_dim;
  const int64_t kv_width = int64_t{layer.n_kv_heads} * layer.head_dim;
  const int64_t n_experts = c.router.n_experts;
  constexpr TensorName kJoined = {"", "model.layers.{}.experts.gate_up_proj"};
  constexpr TensorName kDown = {"", "model.layers.{}.experts.down_proj"};
  constexpr TensorName kRouterScale = {"", "model.layers.{}.router.scale"};
  const auto norm = [&](const char* name) { return b.norm({"", name}, hidden); };
  const auto factor = [&](const char* name) {
    const std::vector<float> value = b.values({"", name}, 1);
    return value.empty() ? 1.0F : value[0];
  };
  LayerWeights w;
  w.attention_norm = norm("model.layers.{}.input_layernorm.weight");
  w.q = b.matrix({"", "model.layers.{}.self_attn.q_proj.weight"}, q_width, hidden);
  w.k = b.matrix({"", "model.layers.{}.self_attn.k_proj.weight"}, kv_width, hidden);
  if (layer.sliding)
    w.v = b.matrix({"", "model.layers.{}.self_attn.v_proj.weight"}, kv_width, hidden);
  w.o = b.matrix({"", "model.layers.{}.self_attn.o_proj.weight"}, hidden, q_width);
  w.q_norm = b.norm({"", "model.layers.{}.self_attn.q_norm.weight"}, layer.head_dim);
  w.k_norm = b.norm({"", "model.layers.{}.self_attn.k_norm.weight"}, layer.head_dim);
  w.attention_post_norm = norm("model.layers.{}.post_attention_layernorm.weight");
  w.mlp_norm = norm("model.layers.{}.pre_feedforward_layernorm.weight");
  w.mlp_gate = b.matrix({"", "model.layers.{}.mlp.gate_proj.weight"}, c.mlp_width, hidden);
  w.mlp_up = b.matrix({"", "model.layers.{}.mlp.up_proj.weight"}, c.mlp_width, hidden);
  w.mlp_down = b.matrix({"", "model.layers.{}.mlp.down_proj.weight"}, hidden, c.mlp_width);
  w.mlp_post_norm = norm("model.layers.{}.post_feedforward_layernorm_1.weight");
  w.experts_norm = norm("model.layers.{}.pre_feedforward_layernorm_2.weight");
  w.gate = b.experts({{}, "", kJoined, 0, 2}, n_experts, c.expert_width, hidden);
  w.up = b.experts({{}, "", kJoined, 1, 2}, n_experts, c.expert_width, hidden);
  w.down = b.experts({{}, "", kDown}, n_experts, hidden, c.expert_width);
  w.experts_post_norm = norm("model.layers.{}.post_feedforward_layernorm_2.weight");
  // The router's input is RMS(x) * scale / sqrt(hidden): a norm with another weight.
  const float root = 1.0F / std::sqrt(static_cast<float>(hidden));
  w.router_norm = b.mapped(kRouterScale, hidden, [=](float scale) { return scale * root; });
  w.router = b.matrix({"", "model.layers.{}.router.proj.weight"}, n_experts, hidden);
  w.expert_scale = b.vector({"", "model.layers.{}.router.per_expert_scale"}, n_experts);
  w.post_norm = norm("model.layers.{}.post_feedforward_layernorm.weight");
  w.decoder_factor = factor("model.layers.{}.layer_scalar");
  w.encoder_factor = factor("model.encoder.language_model.layers.{}.layer_scalar");
  return w;
}

enum class Role : uint8_t { decoder, encoder };

class LayerRecorder {
public:
  LayerRecorder(plan::Plan& plan, const Config& config, DType kv_dtype, plan::BufferId x)
      : plan_(plan), c_(config), x_(x) {
    const auto top_k = int64_t{config.router.top_k};
    y_ = plan.add_buffer({.name = "feed_forward", .width = config.hidden});
    ids_ = plan.add_buffer({.name = "expert_ids", .dtype = DType::i32, .width = top_k});
    weights_ = plan.add_buffer({.name = "expert_weights", .width = top_k});
    inner_ = plan.add_buffer({.name = "expert_inner", .width = top_k * config.expert_width});
    for (size_t i = 0; i < config.layers.size(); ++i) {
      const LayerConfig& layer = config.layers[i];
      const auto cache = [&](const char* name) {
        return plan.add_state({.name = fmt::format("{}.{}", name, i),
                               .dtype = kv_dtype,
                               .width = int64_t{layer.n_kv_heads} * layer.head_dim});
      };
      k_caches_.push_back(cache("k"));
      v_caches_.push_back(cache("v"));
    }
  }

  // Keys and values of the layer go to the cache.
  void record_keys(const LayerWeights& w, size_t i) {
    const LayerConfig& layer = c_.layers[i];
    const Buffers at = buffers(layer);
    const std::string label = std::to_string(i);
    plan::NormLinear qkv = {
        .x = x_, .norm = norm(w.attention_norm), .projections = {{w.q, {}, at.q}, {w.k, {}, at.k}}};
    if (w.v) qkv.projections.push_back({w.v, {}, at.v});
    plan_.add(std::move(qkv), label + ".qkv");
    if (!w.v) plan_.add(plan::Copy{plan_.heads(at.k), plan_.heads(at.v)}, label + ".v");
    plan_.add(
        plan::AttentionPrepare{.q = plan_.heads(at.q, c_.n_heads),
                               .k = plan_.heads(at.k, layer.n_kv_heads),
                               .v = plan_.heads(at.v, layer.n_kv_heads),
                               .q_norm = norm(w.q_norm),
                               .k_norm = norm(w.k_norm),
                               .v_norm = norm({}),
                               .rope = make_rope(layer.sliding ? c_.sliding_rope : c_.full_rope,
                                                 plan::RopePairs::half),
                               .k_cache = k_caches_[i],
                               .v_cache = v_caches_[i]},
        label + ".rope");
  }

  // The rest of the layer.
  void record_rest(const LayerWeights& w, size_t i, Role role) {
    const LayerConfig& layer = c_.layers[i];
    const Buffers at = buffers(layer);
    const std::string label = std::to_string(i);
    plan_.add(plan::Attention{.attend = {.q = plan_.heads(at.q, c_.n_heads),
                                         .k_cache = k_caches_[i],
                                         .v_cache = v_caches_[i],
                                         .n_kv_heads = layer.n_kv_heads,
                                         .scale = 1.0F,
                                         .window = layer.sliding ? c_.window : 0,
                                         .mask = role == Role::decoder ? plan::Mask::bidirectional
                                                                       : plan::Mask::causal,
                                         .out = plan_.heads(at.out, c_.n_heads)}},
              label + ".attention");
    plan_.add(plan::LinearAdd{.in = at.out,
                              .weight = w.o,
                              .residual = {.out = x_, .post_norm = norm(w.attention_post_norm)}},
              label + ".attention_out");
    record_feed_forward(w, label);
    const float factor = role == Role::decoder ? w.decoder_factor : w.encoder_factor;
    plan_.add(plan::RmsNorm{plan_.heads(y_), norm(w.post_norm), plan_.heads(y_)},
              label + ".post_norm");
    plan_.add(plan::Add{x_, y_, x_}, label + ".add");
    plan_.add(plan::Affine{x_, x_, factor, 0.0F}, label + ".factor");
  }

private:
  struct Buffers {
    plan::BufferId q, k, v, out;
  };
  Buffers buffers(const LayerConfig& layer) {
    const int64_t q_width = int64_t{c_.n_heads} * layer.head_dim;
    const int64_t kv_width = int64_t{layer.n_kv_heads} * layer.head_dim;
    return {plan_.scratch("q", q_width), plan_.scratch("k", kv_width), plan_.scratch("v", kv_width),
            plan_.scratch("attention", q_width)};
  }
  plan::Norm norm(plan::WeightId weight) const { return {true, weight, c_.eps}; }

  // y = Norm(MLP(Norm(x))) + Norm(experts(Norm(x)))
  void record_feed_forward(const LayerWeights& w, const std::string& label) {
    plan_.add(
        plan::Mlp{.x = x_,
                  .norm = norm(w.mlp_norm),
                  .gate = w.mlp_gate,
                  .up = w.mlp_up,
                  .down = w.mlp_down,
                  .activation = plan::Activation::gelu_tanh,
                  .residual = {.out = y_, .accumulate = false, .post_norm = norm(w.mlp_post_norm)}},
        label + ".mlp");
    plan::Router router = c_.router;
    router.expert_scale = w.expert_scale;
    plan_.add(plan::Route{.x = x_,
                          .norm = norm(w.router_norm),
                          .weight = w.router,
                          .router = router,
                          .ids = ids_,
                          .weights = weights_},
              label + ".route");
    plan_.add(plan::ExpertsUp{.x = x_,
                              .norm = norm(w.experts_norm),
                              .gate = w.gate,
                              .up = w.up,
                              .activation = plan::Activation::gelu_tanh,
                              .ids = ids_,
                              .inner = inner_},
              label + ".experts_up");
    plan_.add(plan::ExpertsDown{.inner = inner_,
                                .down = w.down,
                                .ids = ids_,
                                .weights = weights_,
                                .residual = {.out = y_, .post_norm = norm(w.experts_post_norm)}},
              label + ".experts_down");
  }

  plan::Plan& plan_;
  const Config& c_;
  plan::BufferId x_;
  plan::BufferId y_;                      // (rows, hidden)
  plan::BufferId ids_, weights_, inner_;  // (rows, top_k), (rows, top_k * expert_width)
  std::vector<plan::StateId> k_caches_, v_caches_;
};

plan::SelfCondition bind_self_condition(Binder& b, const Config& c, plan::WeightId table,
                                        float embed_scale) {
  constexpr TensorName kNorm = {"", "model.self_conditioning.pre_norm.weight"};
  constexpr TensorName kGate = {"", "model.self_conditioning.gate_proj.weight"};
  constexpr TensorName kUp = {"", "model.self_conditioning.up_proj.weight"};
  constexpr TensorName kDown = {"", "model.self_conditioning.down_proj.weight"};
  return {.probabilities = {},
          .table = table,
          .embed_scale = embed_scale,
          .soft_norm = {true, b.norm(kNorm, c.hidden), c.eps},
          .out_norm = {true, {}, c.eps},
          .gate = b.matrix(kGate, c.mlp_width, c.hidden),
          .up = b.matrix(kUp, c.mlp_width, c.hidden),
          .down = b.matrix(kDown, c.hidden, c.mlp_width),
          .x = {}};
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  KAPITSA_TRY(refuse_mlx(file, "diffusion_gemma"));
  ConfigReader reader(file, "", "text_config.");
  ConfigReader outer_reader(file, "");
  Config c = read_config(reader);
  CanvasDiffusion rule = read_rule(outer_reader, c);
  KAPITSA_TRY(reader.status());
  KAPITSA_TRY(outer_reader.status());

  Model model;
  model.architecture = "diffusion_gemma";
  model.n_layers = c.decoder.n_layers;
  model.context_trained = c.decoder.context;
  Binder b(file, model, renames());
  const DecoderWeights outer = bind_decoder(b, c.decoder, c.hidden);
  const float embed_scale = std::sqrt(static_cast<float>(c.hidden));
  plan::SelfCondition condition = bind_self_condition(b, c, outer.embedding, embed_scale);
  std::vector<LayerWeights> layers;
  for (int32_t i = 0; i < c.decoder.n_layers && b.status(); ++i) {
    b.set_layer(i);
    layers.push_back(bind_layer(b, c, c.layers[static_cast<size_t>(i)]));
  }
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = p.add_buffer({.name = "x", .width = c.hidden});  // (rows, hidden)
  rule.conditions = p.add_buffer({.name = "conditions", .width = c.decoder.n_vocab, .input = true});
  LayerRecorder recorder(p, c, options.kv_dtype, x);
  const plan::Embed embed = {.table = outer.embedding, .scale = embed_scale, .out = x};

  p.begin_routine("denoise");
  p.add(embed, "embed");
  condition.probabilities = rule.conditions;
  condition.x = x;
  p.add(condition, "self_condition");
  for (size_t i = 0; i < layers.size(); ++i) {
    recorder.record_keys(layers[i], i);
    recorder.record_rest(layers[i], i, Role::decoder);
  }
  end_decoder(p, c.decoder, outer, x, c.eps);

  p.begin_routine("encode");  // only keys and values count
  p.add(embed, "embed");
  for (size_t i = 0; i < layers.size(); ++i) {
    recorder.record_keys(layers[i], i);
    if (i + 1 < layers.size()) recorder.record_rest(layers[i], i, Role::encoder);
  }
  model.diffusion =
      Diffusion{.block = c.canvas, .rule = rule, .denoise_routine = 0, .store_routine = 1};
  return model;
}

}  // namespace

// The GGUF keys of its conversions are not known.
extern const ArchDef arch_diffusion_gemma;
const ArchDef arch_diffusion_gemma = {
    .name = "diffusion_gemma", .gguf_names = {}, .model_types = {"diffusion_gemma"}, .load = load};

}  // namespace kapitsa::model
