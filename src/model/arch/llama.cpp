// Llama (Touvron et al., arXiv 2302.13971; Llama 3, arXiv 2407.21783) and the many models of its
// shape: Llama 1 to 3, SmolLM2, TinyLlama, Mistral 7B. Pre-norm blocks of grouped-query attention
// with rope and a SwiGLU MLP; plain RMS norms; no biases unless the file has them. GGUF: q and k
// rows are permuted for adjacent rope pairs, and Llama 3 divisors are the tensor rope_freqs.weight.
#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/rope.h"

namespace kapitsa::model {
namespace {

constexpr TensorName kRopeDivisors = {"rope_freqs.weight", ""};

void refuse_experts(ConfigReader& reader) {
  constexpr Key kExperts = {"expert_count", "num_local_experts"};
  const std::string key = reader.name(kExperts);
  const auto n_experts = reader.file().integer_or(key, 0);
  if (n_experts && *n_experts != 0) {
    reader.refuse(ErrorCode::unsupported, kExperts, "0 (a dense model)",
                  std::to_string(*n_experts));
  }
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "llama");
  AttentionConfig attention_config = read_attention(reader);
  constexpr Key kWindow = {"attention.sliding_window", "sliding_window"};  // Mistral 7B v0.1
  if (reader.has(kWindow)) attention_config.window = reader.count(kWindow, 1 << 28);
  if (attention_config.window == 0) refuse_sliding_layers(reader);
  const int32_t hidden = attention_config.hidden;
  const float eps = attention_config.norm_eps;
  const DecoderConfig decoder = read_decoder(reader, hidden);
  const int32_t mlp_width = reader.count({"feed_forward_length", "intermediate_size"}, 1 << 22);
  RopeConfig rope = read_rope(reader, attention_config.head_dim);
  refuse_experts(reader);
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = "llama";
  model.n_layers = decoder.n_layers;
  model.context_trained = decoder.context;
  Binder b(file, model);
  const DecoderWeights outer = bind_decoder(b, decoder, hidden);
  if (b.has(kRopeDivisors)) rope.divisors = b.values(kRopeDivisors, rope.dims / 2);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  const auto pairs = reader.is_gguf() ? plan::RopePairs::adjacent : plan::RopePairs::half;
  AttentionRecorder attention(p, attention_config, make_rope(rope, pairs), options.kv_dtype, x);
  for (int32_t i = 0; i < decoder.n_layers; ++i) {
    b.set_layer(i);
    const AttentionWeights attention_weights =
        bind_attention(b, attention_config, /*with_head_norms=*/false);
    const MlpWeights mlp = bind_mlp(b, hidden, mlp_width);
    KAPITSA_TRY(b.status());
    attention.record(attention_weights, i);
    record_mlp(p, mlp, x, eps, i);
  }
  end_decoder(p, decoder, outer, x, eps);
  return model;
}

}  // namespace

extern const ArchDef arch_llama;
const ArchDef arch_llama = {
    .name = "llama", .gguf_names = {"llama"}, .model_types = {"llama", "mistral"}, .load = load};

}  // namespace kapitsa::model
