// Qwen3.5 and 3.6 mixture of experts (released config; transformers, modeling_qwen3_5_moe): the
// Qwen3.5 mixers, and in every layer routed SwiGLU experts beside a shared one with a gate of its
// own. Router: softmax over all experts, the best k, weights divided by their sum.
#include "model/blocks/experts.h"
#include "model/blocks/hybrid.h"
#include "model/blocks/mtp.h"

namespace kapitsa::model {
namespace {

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "qwen35moe", text_config_prefix(file));
  HybridConfig config = read_hybrid(reader);
  if (reader.is_gguf()) config.delta.head_map = plan::HeadMap::tiled;
  const int32_t hidden = config.attention.hidden;
  const float eps = config.attention.norm_eps;
  const int32_t n_layers = config.decoder.n_layers;
  ExpertsConfig experts_config = read_experts(reader, hidden);
  experts_config.norm = kPostAttentionNorm;
  experts_config.shared_width = reader.count(kSharedWidth, 1 << 20);
  experts_config.router.score = plan::RouterScore::softmax;
  experts_config.router.renormalise = true;
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = "qwen35_moe";
  model.n_layers = n_layers;
  model.context_trained = config.decoder.context;
  Binder b(file, model);
  b.set_norm_offset(one_plus_norm_offset(file));
  const DecoderWeights outer = bind_decoder(b, config.decoder, hidden);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  HybridMixers mixers(p, config, options.kv_dtype, x);
  ExpertsRecorder experts(p, experts_config, x, eps);
  for (int32_t i = 0; i < n_layers; ++i) {
    b.set_layer(i);
    KAPITSA_TRY(mixers.record(b, i));
    const ExpertsWeights experts_weights = bind_experts(b, experts_config);
    KAPITSA_TRY(b.status());
    experts.record(experts_weights, i);
  }
  end_decoder(p, config.decoder, outer, x, eps);

  if (options.mtp && has_mtp(b, config.decoder)) {
    MtpRecorder head(p, outer, x, eps);
    const MtpWeights mtp = bind_mtp(b, config.decoder, outer, hidden);
    const ExpertsWeights experts_weights = bind_experts(b, experts_config);
    KAPITSA_TRY(b.status());
    head.begin(mtp);
    KAPITSA_TRY(mixers.record_attention(b, n_layers));
    experts.record(experts_weights, n_layers);
    head.end(mtp);
  }
  return model;
}

}  // namespace

extern const ArchDef arch_qwen35_moe;
const ArchDef arch_qwen35_moe = {.name = "qwen35_moe",
                                 .gguf_names = {"qwen35moe"},
                                 .model_types = {"qwen3_5_moe", "qwen3_5_moe_text"},
                                 .load = load};

}  // namespace kapitsa::model
