// Llama (Touvron et al., arXiv 2302.13971; Llama 3, arXiv 2407.21783) and the many models of its
// shape: Llama 1-3, SmolLM2, TinyLlama, Mistral 7B as GGUF. Pre-norm blocks of grouped-query
// attention with rope and a SwiGLU MLP; plain RMS norms; no biases unless the file has them.
// GGUF: q and k rows are permuted for adjacent rope pairs; the output matrix may be tied to the
// embedding; Llama 3 frequency divisors are the tensor rope_freqs.weight.
#include "model/binder.h"
#include "model/blocks/rope.h"
#include "model/config.h"

#include <cmath>

namespace kapitsa::model {
namespace {

struct Config {
  int32_t n_layers = 0;
  int32_t hidden = 0;
  int32_t mlp_width = 0;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t n_vocab = 0;
  int32_t context = 0;  // tokens
  float norm_eps = 0.0F;
  RopeConfig rope;
};

struct Layer {
  plan::WeightId attn_norm;
  plan::WeightId wq, wk, wv, wo;
  plan::WeightId bq, bk, bv, bo;  // absent in most checkpoints
  plan::WeightId mlp_norm;
  plan::WeightId gate, up, down;
};

struct Tensors {
  plan::WeightId embedding;
  std::vector<Layer> layers;
  plan::WeightId output_norm;
  plan::WeightId output;
};

constexpr TensorName kEmbedding = {"token_embd.weight", "model.embed_tokens.weight"};
constexpr TensorName kRopeDivisors = {"rope_freqs.weight", ""};
constexpr TensorName kAttnNorm = {"blk.{}.attn_norm.weight",
                                  "model.layers.{}.input_layernorm.weight"};
constexpr TensorName kQ = {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"};
constexpr TensorName kK = {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"};
constexpr TensorName kV = {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"};
constexpr TensorName kO = {"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"};
constexpr TensorName kQBias = {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"};
constexpr TensorName kKBias = {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"};
constexpr TensorName kVBias = {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"};
constexpr TensorName kOBias = {"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"};
constexpr TensorName kMlpNorm = {"blk.{}.ffn_norm.weight",
                                 "model.layers.{}.post_attention_layernorm.weight"};
constexpr TensorName kGate = {"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"};
constexpr TensorName kUp = {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"};
constexpr TensorName kDown = {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"};
constexpr TensorName kOutputNorm = {"output_norm.weight", "model.norm.weight"};
constexpr TensorName kOutput = {"output.weight", "lm_head.weight"};

Result<Config> read_gguf(const weights::Checkpoint& file) {
  Config c;
  KAPITSA_ASSIGN(c.n_layers, read_count(file, "llama.block_count", 1000));
  KAPITSA_ASSIGN(c.hidden, read_count(file, "llama.embedding_length", 1 << 20));
  KAPITSA_ASSIGN(c.mlp_width, read_count(file, "llama.feed_forward_length", 1 << 22));
  KAPITSA_ASSIGN(c.n_heads, read_count(file, "llama.attention.head_count", 4096));
  KAPITSA_ASSIGN(c.n_kv_heads,
                 read_count_or(file, "llama.attention.head_count_kv", c.n_heads, c.n_heads));
  KAPITSA_ASSIGN(c.context, read_count(file, "llama.context_length", 1 << 28));
  KAPITSA_ASSIGN(const double eps, file.number("llama.attention.layer_norm_rms_epsilon", 0.0, 1.0));
  c.norm_eps = static_cast<float>(eps);
  KAPITSA_ASSIGN(const int64_t n_experts, file.integer_or("llama.expert_count", 0));
  if (n_experts != 0) {
    return Error{ErrorCode::unsupported,
                 file.path().string() + ": llama.expert_count: expected a dense model (0), found " +
                     std::to_string(n_experts) + " experts"};
  }
  if (c.n_heads % c.n_kv_heads != 0) {
    return Error{ErrorCode::corrupt_file,
                 file.path().string() + ": llama.attention.head_count_kv: expected a divisor of " +
                     std::to_string(c.n_heads) + ", found " + std::to_string(c.n_kv_heads)};
  }
  KAPITSA_ASSIGN(c.head_dim,
                 read_count_or(file, "llama.attention.key_length", c.hidden / c.n_heads, 4096));
  KAPITSA_ASSIGN(c.rope, read_gguf_rope(file, "llama", c.head_dim));
  return c;
}

// The vocabulary is as large as the embedding says; metadata may leave it out.
Result<int32_t> read_vocab(const weights::Checkpoint& file, const Config& c) {
  const weights::Tensor* table = file.find(kEmbedding.gguf);
  if (table == nullptr || table->shape.size() != 2 || table->shape[1] != c.hidden ||
      table->shape[0] > (1 << 24)) {
    return Error{ErrorCode::corrupt_file,
                 file.path().string() + ": tensor '" + std::string(kEmbedding.gguf) +
                     "': expected shape (vocabulary, " + std::to_string(c.hidden) +
                     "), found another or none"};
  }
  return static_cast<int32_t>(table->shape[0]);
}

Result<Tensors> bind(const weights::Checkpoint& file, Config& c, Model& model) {
  Binder b(file, model);
  const int64_t q_width = int64_t{c.n_heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.n_kv_heads} * c.head_dim;
  Tensors t;
  t.embedding = b.matrix(kEmbedding, c.n_vocab, c.hidden);
  for (int32_t i = 0; i < c.n_layers && b.status(); ++i) {
    b.set_layer(i);
    t.layers.push_back({
        .attn_norm = b.vector(kAttnNorm, c.hidden),
        .wq = b.matrix(kQ, q_width, c.hidden),
        .wk = b.matrix(kK, kv_width, c.hidden),
        .wv = b.matrix(kV, kv_width, c.hidden),
        .wo = b.matrix(kO, c.hidden, q_width),
        .bq = b.optional_vector(kQBias, q_width),
        .bk = b.optional_vector(kKBias, kv_width),
        .bv = b.optional_vector(kVBias, kv_width),
        .bo = b.optional_vector(kOBias, c.hidden),
        .mlp_norm = b.vector(kMlpNorm, c.hidden),
        .gate = b.matrix(kGate, c.mlp_width, c.hidden),
        .up = b.matrix(kUp, c.mlp_width, c.hidden),
        .down = b.matrix(kDown, c.hidden, c.mlp_width),
    });
  }
  t.output_norm = b.vector(kOutputNorm, c.hidden);
  t.output = b.has(kOutput) ? b.matrix(kOutput, c.n_vocab, c.hidden) : t.embedding;
  if (b.has(kRopeDivisors)) c.rope.divisors = b.values(kRopeDivisors, c.rope.dims / 2);
  KAPITSA_TRY(b.status());
  return t;
}

void record(const Config& c, const Tensors& t, plan::RopePairs pairs, DType kv_dtype,
            plan::Plan& p) {
  const int32_t q_width = c.n_heads * c.head_dim;
  const int32_t kv_width = c.n_kv_heads * c.head_dim;
  const plan::Rope rope = make_rope(c.rope, pairs);
  const auto norm = [&](plan::WeightId weight) { return plan::Norm{true, weight, c.norm_eps}; };

  const auto x = p.add_buffer({.name = "x", .width = c.hidden});  // (rows, hidden), residual
  const auto q = p.add_buffer({.name = "q", .width = q_width});   // (rows, n_heads, head_dim)
  const auto k = p.add_buffer({.name = "k", .width = kv_width});  // (rows, n_kv_heads, head_dim)
  const auto v = p.add_buffer({.name = "v", .width = kv_width});  // (rows, n_kv_heads, head_dim)
  const auto attn = p.add_buffer({.name = "attn", .width = q_width});  // (rows, n_heads, head_dim)
  p.logits = p.add_buffer({.name = "logits",                           // (outputs, vocab)
                           .width = c.n_vocab,
                           .rows = plan::RowSpace::output,
                           .readable = true});
  p.n_vocab = c.n_vocab;

  p.begin_routine("decode");
  p.add(plan::Embed{.table = t.embedding, .out = x}, "embed");
  for (int32_t i = 0; i < c.n_layers; ++i) {
    const Layer& l = t.layers[static_cast<size_t>(i)];
    const std::string at = std::to_string(i);
    const auto k_cache = p.add_state({.name = "k." + at, .dtype = kv_dtype, .width = kv_width});
    const auto v_cache = p.add_state({.name = "v." + at, .dtype = kv_dtype, .width = kv_width});

    // x += W_o attention(rope(W_q n(x)), rope(W_k n(x)), W_v n(x))
    p.add(plan::NormLinear{.x = x,
                           .norm = norm(l.attn_norm),
                           .projections = {{l.wq, l.bq, q}, {l.wk, l.bk, k}, {l.wv, l.bv, v}}},
          at + ".qkv");
    p.add(plan::AttentionPrepare{.q = p.heads(q, c.n_heads),
                                 .k = p.heads(k, c.n_kv_heads),
                                 .v = p.heads(v, c.n_kv_heads),
                                 .rope = rope,
                                 .k_cache = k_cache,
                                 .v_cache = v_cache},
          at + ".rope");
    p.add(plan::Attention{.attend = {.q = p.heads(q, c.n_heads),
                                     .k_cache = k_cache,
                                     .v_cache = v_cache,
                                     .n_kv_heads = c.n_kv_heads,
                                     .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                                     .out = p.heads(attn, c.n_heads)}},
          at + ".attention");
    p.add(plan::LinearAdd{.in = attn, .weight = l.wo, .bias = l.bo, .residual = {.out = x}},
          at + ".attn_out");

    // x += W_down (silu(W_gate n(x)) * W_up n(x))
    p.add(plan::Mlp{.x = x,
                    .norm = norm(l.mlp_norm),
                    .gate = l.gate,
                    .up = l.up,
                    .down = l.down,
                    .residual = {.out = x}},
          at + ".mlp");
  }
  p.add(plan::Head{.x = x, .norm = norm(t.output_norm), .weight = t.output, .logits = p.logits},
        "head");
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  if (file.format() != weights::Format::gguf) {
    return Error{ErrorCode::unsupported,
                 file.path().string() + ": llama checkpoints are read from GGUF files"};
  }
  KAPITSA_ASSIGN(Config config, read_gguf(file));
  KAPITSA_ASSIGN(config.n_vocab, read_vocab(file, config));
  Model model;
  model.architecture = "llama";
  model.n_layers = config.n_layers;
  model.context_trained = config.context;
  KAPITSA_ASSIGN(const Tensors tensors, bind(file, config, model));
  record(config, tensors, plan::RopePairs::adjacent, options.kv_dtype, model.plan);
  return model;
}

}  // namespace

extern const ArchDef arch_llama;
const ArchDef arch_llama = {
    .name = "llama", .gguf_names = {"llama"}, .model_types = {"llama", "mistral"}, .load = load};

}  // namespace kapitsa::model
