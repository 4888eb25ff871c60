// Qwen3 mixture of experts (arXiv 2505.09388): the Qwen3 attention block, and in every layer routed
// SwiGLU experts in place of the MLP. No shared expert.
#include "model/blocks/sparse_decoder.h"

namespace kapitsa::model {
namespace {

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  return load_sparse_decoder(file, options, "qwen3_moe");
}

}  // namespace

extern const ArchDef arch_qwen3_moe;
const ArchDef arch_qwen3_moe = {
    .name = "qwen3_moe", .gguf_names = {"qwen3moe"}, .model_types = {"qwen3_moe"}, .load = load};

}  // namespace kapitsa::model
