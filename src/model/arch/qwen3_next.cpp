// Qwen3-Next (released config; transformers, modeling_qwen3_next): three layers of gated delta rule
// for each layer of gated attention, and in every layer routed SwiGLU experts beside a shared one
// with a gate of its own. One-plus RMS norms. Its files join the projections of the delta rule by
// key head, and also in GGUF value heads keep that order.
#include "model/blocks/experts.h"
#include "model/blocks/hybrid.h"
#include "model/blocks/mtp.h"

namespace kapitsa::model {
namespace {

// Published files have experts in every layer; a sibling that does not is refused.
void check_every_layer_is_sparse(ConfigReader& reader) {
  constexpr Key kStep = {"", "decoder_sparse_step"};
  constexpr Key kDense = {"", "mlp_only_layers"};
  const int32_t step = reader.count_or(kStep, 1, 1000);
  if (step != 1) {
    reader.refuse(ErrorCode::unsupported, kStep, "1 (experts in every layer)",
                  std::to_string(step));
  }
  if (!reader.has(kDense)) return;
  const auto dense = reader.file().integers(reader.name(kDense));
  if (!dense || !dense->empty()) {
    reader.refuse(ErrorCode::unsupported, kDense, "none (experts in every layer)",
                  dense ? std::to_string(dense->size()) + " layers" : "another value");
  }
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "qwen3next", text_config_prefix(file));
  const HybridConfig config = read_hybrid(reader);
  const int32_t hidden = config.attention.hidden;
  const float eps = config.attention.norm_eps;
  const int32_t n_layers = config.decoder.n_layers;
  ExpertsConfig experts_config = read_experts(reader, hidden);
  experts_config.norm = kPostAttentionNorm;
  experts_config.shared_width = reader.count(kSharedWidth, 1 << 20);
  experts_config.router.score = plan::RouterScore::softmax;
  experts_config.router.renormalise = reader.flag_or({"", "norm_topk_prob"}, true);
  check_every_layer_is_sparse(reader);
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = "qwen3_next";
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

extern const ArchDef arch_qwen3_next;
const ArchDef arch_qwen3_next = {
    .name = "qwen3_next", .gguf_names = {"qwen3next"}, .model_types = {"qwen3_next"}, .load = load};

}  // namespace kapitsa::model
