#include "model/blocks/hybrid.h"

namespace kapitsa::model {
namespace {

constexpr double kRopeShare = 0.25;  // of a head, where the file does not say

}  // namespace

HybridConfig read_hybrid(ConfigReader& reader) {
  constexpr Key kGate = {"", "attn_output_gate"};
  HybridConfig config;
  config.attention = read_attention(reader);
  config.attention.output_gate = reader.flag_or(kGate, true);
  config.decoder = read_decoder(reader, config.attention.hidden);
  config.delta = read_delta(reader, config.attention.hidden, config.attention.norm_eps);
  config.is_delta = read_delta_layers(reader, config.decoder.n_layers);
  config.rope = read_rope(reader, config.attention.head_dim, kRopeShare);
  if (!config.attention.output_gate) {
    reader.refuse(ErrorCode::unsupported, kGate, "true (gated attention)", "false");
  }
  return config;
}

HybridMixers::HybridMixers(plan::Plan& plan, const HybridConfig& config, DType kv_dtype,
                           plan::BufferId x)
    : config_(config), attention_(plan, config.attention,
                                  make_rope(config.rope, plan::RopePairs::half), kv_dtype, x),
      delta_(plan, config.delta, x) {}

Status HybridMixers::record(Binder& binder, int32_t layer) {
  if (!config_.is_delta[static_cast<size_t>(layer)]) return record_attention(binder, layer);
  const DeltaWeights weights = bind_delta(binder, config_.delta);
  KAPITSA_TRY(binder.status());
  delta_.record(weights, layer);
  return {};
}

Status HybridMixers::record_attention(Binder& binder, int32_t layer) {
  const AttentionWeights weights =
      bind_attention(binder, config_.attention, /*with_head_norms=*/true);
  KAPITSA_TRY(binder.status());
  attention_.record(weights, layer);
  return {};
}

}  // namespace kapitsa::model
