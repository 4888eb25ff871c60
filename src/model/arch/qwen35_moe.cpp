// Qwen3.5 and 3.6 mixture of experts (released config; transformers, modeling_qwen3_5_moe): the
// Qwen3.5 mixers, and in every layer routed SwiGLU experts beside a shared one with a gate of its
// own. Router: softmax over all experts, the best k, weights divided by their sum.
#include "model/blocks/hybrid_experts.h"

namespace kapitsa::model {
namespace {

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "qwen35moe", text_config_prefix(file));
  HybridConfig config = read_hybrid(reader);
  if (reader.is_gguf()) config.delta.head_map = plan::HeadMap::tiled;
  const ExpertsConfig experts = read_hybrid_experts(reader, config.attention.hidden);
  KAPITSA_TRY(reader.status());
  return record_hybrid_experts(file, options, "qwen35_moe", config, experts);
}

}  // namespace

extern const ArchDef arch_qwen35_moe;
const ArchDef arch_qwen35_moe = {.name = "qwen35_moe",
                                 .gguf_names = {"qwen35moe"},
                                 .model_types = {"qwen3_5_moe", "qwen3_5_moe_text"},
                                 .load = load};

}  // namespace kapitsa::model
