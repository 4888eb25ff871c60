#include "model/blocks/hybrid_experts.h"

#include "model/blocks/mtp.h"

#include <utility>

namespace kapitsa::model {

ExpertsConfig read_hybrid_experts(ConfigReader& reader, int32_t hidden) {
  ExpertsConfig config = read_experts(reader, hidden);
  config.norm = kPostAttentionNorm;
  config.shared_width = reader.count(kSharedWidth, 1 << 20);
  config.router.score = plan::RouterScore::softmax;
  config.router.renormalise = true;
  return config;
}

Result<Model> record_hybrid_experts(const weights::Checkpoint& file, const RecordOptions& options,
                                    std::string architecture, const HybridConfig& config,
                                    const ExpertsConfig& experts_config) {
  const int32_t hidden = config.attention.hidden;
  const float eps = config.attention.norm_eps;
  const int32_t n_layers = config.decoder.n_layers;
  Model model;
  model.architecture = std::move(architecture);
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

}  // namespace kapitsa::model
