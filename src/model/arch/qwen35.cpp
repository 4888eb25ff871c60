// Qwen3.5 to 3.8, dense (released config; transformers, modeling_qwen3_5): three layers of gated
// delta rule for each layer of gated attention, all with a SwiGLU MLP. One-plus RMS norms; rope on
// the first quarter of a head: its interleaved M-RoPE is ordinary rope where the three axes of a
// position are equal, as in text. GGUF orders value heads so that those of a key head are n_k
// apart.
#include "model/blocks/hybrid.h"
#include "model/blocks/mtp.h"

namespace kapitsa::model {
namespace {

void refuse_experts(ConfigReader& reader) {
  constexpr Key kExperts = {"expert_count", "num_experts"};
  const int32_t n_experts = reader.optional_count(kExperts, 65536);
  if (n_experts != 0) {
    reader.refuse(ErrorCode::unsupported, kExperts, "0 (a dense model)", std::to_string(n_experts));
  }
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "qwen35", text_config_prefix(file));
  HybridConfig config = read_hybrid(reader);
  if (reader.is_gguf()) config.delta.head_map = plan::HeadMap::tiled;
  const int32_t hidden = config.attention.hidden;
  const float eps = config.attention.norm_eps;
  const int32_t n_layers = config.decoder.n_layers;
  const int32_t mlp_width = reader.count({"feed_forward_length", "intermediate_size"}, 1 << 22);
  refuse_experts(reader);
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = "qwen35";
  model.n_layers = n_layers;
  model.context_trained = config.decoder.context;
  Binder b(file, model);
  b.set_norm_offset(one_plus_norm_offset(file));
  const DecoderWeights outer = bind_decoder(b, config.decoder, hidden);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  HybridMixers mixers(p, config, options.kv_dtype, x);
  for (int32_t i = 0; i < n_layers; ++i) {
    b.set_layer(i);
    KAPITSA_TRY(mixers.record(b, i));
    const MlpWeights mlp = bind_mlp(b, hidden, mlp_width, kPostAttentionNorm);
    KAPITSA_TRY(b.status());
    record_mlp(p, mlp, x, eps, i);
  }
  end_decoder(p, config.decoder, outer, x, eps);

  if (options.mtp && has_mtp(b, config.decoder)) {
    MtpRecorder head(p, outer, x, eps);
    const MtpWeights mtp = bind_mtp(b, config.decoder, outer, hidden);
    const MlpWeights mlp = bind_mlp(b, hidden, mlp_width, kPostAttentionNorm);
    KAPITSA_TRY(b.status());
    head.begin(mtp);
    KAPITSA_TRY(mixers.record_attention(b, n_layers));
    record_mlp(p, mlp, x, eps, n_layers);
    head.end(mtp);
  }
  return model;
}

}  // namespace

extern const ArchDef arch_qwen35;
const ArchDef arch_qwen35 = {.name = "qwen35",
                             .gguf_names = {"qwen35"},
                             .model_types = {"qwen3_5", "qwen3_5_text"},
                             .load = load};

}  // namespace kapitsa::model
