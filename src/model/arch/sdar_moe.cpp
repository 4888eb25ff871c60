// SDAR mixture of experts (arXiv 2510.06303): Qwen3 mixtures of experts that were trained on to
// write by masked block diffusion; the layers are theirs. Files name neither block nor mask: the
// released ones have blocks of 4 and a mask token behind Qwen3's vocabulary.
#include "model/blocks/sparse_decoder.h"

namespace kapitsa::model {
namespace {

constexpr MaskedDefaults kReleased = {.block = 4, .mask_token = 151669, .threshold = 0.95};

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  KAPITSA_ASSIGN(const Diffusion diffusion, read_masked_diffusion(file, kReleased));
  KAPITSA_ASSIGN(Model model, load_sparse_decoder(file, options, "sdar_moe"));
  model.diffusion = diffusion;
  return model;
}

}  // namespace

// No GGUF layout of it is known; a qwen3moe file with the diffusion keys is the same model.
extern const ArchDef arch_sdar_moe;
const ArchDef arch_sdar_moe = {
    .name = "sdar_moe", .gguf_names = {}, .model_types = {"sdar_moe"}, .load = load};

}  // namespace kapitsa::model
