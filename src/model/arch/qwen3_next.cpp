// Qwen3-Next (released config; transformers, modeling_qwen3_next): three layers of gated delta rule
// for each layer of gated attention, and in every layer routed SwiGLU experts beside a shared one
// with a gate of its own. One-plus RMS norms. Its files join the projections of the delta rule by
// key head, and also in GGUF value heads keep that order.
#include "model/blocks/hybrid_experts.h"

namespace kapitsa::model {
namespace {

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "qwen3next", text_config_prefix(file));
  const HybridConfig config = read_hybrid(reader);
  ExpertsConfig experts = read_hybrid_experts(reader, config.attention.hidden);
  experts.router.renormalise = reader.flag_or({"", "norm_topk_prob"}, true);
  refuse_dense_layers(reader);
  KAPITSA_TRY(reader.status());
  return record_hybrid_experts(file, options, "qwen3_next", config, experts);
}

}  // namespace

extern const ArchDef arch_qwen3_next;
const ArchDef arch_qwen3_next = {
    .name = "qwen3_next", .gguf_names = {"qwen3next"}, .model_types = {"qwen3_next"}, .load = load};

}  // namespace kapitsa::model
