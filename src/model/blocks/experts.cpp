#include "model/blocks/experts.h"

#include <fmt/format.h>

namespace kapitsa::model {
namespace {

constexpr TensorName kRouter = {"blk.{}.ffn_gate_inp.weight", "model.layers.{}.mlp.gate.weight"};
constexpr TensorName kSelectionBias = {"blk.{}.exp_probs_b.bias",
                                       "model.layers.{}.mlp.gate.e_score_correction_bias"};
constexpr TensorName kJoined = {"blk.{}.ffn_gate_up_exps.weight",
                                "model.layers.{}.mlp.experts.gate_up_proj"};
constexpr ExpertName kGate = {
    .stacked = {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.switch_mlp.gate_proj.weight"},
    .single = "model.layers.{}.mlp.experts.{}.gate_proj.weight",
    .joined = kJoined,
    .part = 0,
    .n_parts = 2};
constexpr ExpertName kUp = {
    .stacked = {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.switch_mlp.up_proj.weight"},
    .single = "model.layers.{}.mlp.experts.{}.up_proj.weight",
    .joined = kJoined,
    .part = 1,
    .n_parts = 2};
constexpr ExpertName kDown = {
    .stacked = {"blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.switch_mlp.down_proj.weight"},
    .single = "model.layers.{}.mlp.experts.{}.down_proj.weight",
    .joined = {"", "model.layers.{}.mlp.experts.down_proj"}};
constexpr TensorName kSharedGate = {"blk.{}.ffn_gate_shexp.weight",
                                    "model.layers.{}.mlp.shared_expert.gate_proj.weight"};
constexpr TensorName kSharedUp = {"blk.{}.ffn_up_shexp.weight",
                                  "model.layers.{}.mlp.shared_expert.up_proj.weight"};
constexpr TensorName kSharedDown = {"blk.{}.ffn_down_shexp.weight",
                                    "model.layers.{}.mlp.shared_expert.down_proj.weight"};
constexpr TensorName kSharedMix = {"blk.{}.ffn_gate_inp_shexp.weight",
                                   "model.layers.{}.mlp.shared_expert_gate.weight"};

}  // namespace

ExpertsConfig read_experts(ConfigReader& reader, int32_t hidden) {
  ExpertsConfig config;
  config.hidden = hidden;
  config.width = reader.count({"expert_feed_forward_length", "moe_intermediate_size"}, 1 << 20);
  // transformers 5 writes num_local_experts where versions before wrote num_experts.
  constexpr Key kRenamed = {"", "num_local_experts"};
  config.router.n_experts =
      reader.count(reader.has(kRenamed) ? kRenamed : Key{"expert_count", "num_experts"}, 65536);
  config.router.top_k =
      reader.count({"expert_used_count", "num_experts_per_tok"}, config.router.n_experts);
  return config;
}

void read_router_groups(ConfigReader& reader, plan::Router& router) {
  constexpr Key kGroups = {"expert_group_count", "n_group"};
  constexpr Key kTopGroups = {"expert_group_used_count", "topk_group"};
  router.n_groups = reader.count_or(kGroups, 1, router.n_experts);
  router.top_groups = reader.count_or(kTopGroups, 1, router.n_groups);
  const int32_t kept = router.n_experts / router.n_groups * router.top_groups;
  if (router.n_experts % router.n_groups != 0 || router.top_k > kept) {
    reader.refuse(ErrorCode::corrupt_file, kGroups,
                  fmt::format("equal groups of {} experts, of which {} hold {}", router.n_experts,
                              router.top_groups, router.top_k),
                  std::to_string(router.n_groups));
  }
}

void refuse_dense_layers(ConfigReader& reader) {
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

ExpertsWeights bind_experts(Binder& binder, const ExpertsConfig& config) {
  const int64_t n = config.router.n_experts;
  ExpertsWeights w = {.norm = binder.norm(config.norm, config.hidden),
                      .router = binder.matrix(kRouter, n, config.hidden),
                      .selection_bias = {},
                      .gate = {},
                      .up = binder.experts(kUp, n, config.width, config.hidden),
                      .down = binder.experts(kDown, n, config.hidden, config.width)};
  if (config.selection_bias) w.selection_bias = binder.vector(kSelectionBias, n);
  if (config.gated) w.gate = binder.experts(kGate, n, config.width, config.hidden);
  if (config.shared_width > 0) {
    if (config.gated) {
      w.shared_gate = binder.matrix(kSharedGate, config.shared_width, config.hidden);
    }
    w.shared_up = binder.matrix(kSharedUp, config.shared_width, config.hidden);
    w.shared_down = binder.matrix(kSharedDown, config.hidden, config.shared_width);
    if (config.shared_mix) w.shared_mix = binder.row(kSharedMix, config.hidden);
  }
  return w;
}

ExpertsRecorder::ExpertsRecorder(plan::Plan& plan, const ExpertsConfig& config, plan::BufferId x,
                                 float norm_eps, plan::BufferId y)
    : plan_(plan), config_(config), x_(x), result_(result_of(x, y)), norm_eps_(norm_eps) {
  const int64_t top_k = config.router.top_k;
  ids_ = plan.add_buffer({.name = "expert_ids", .dtype = DType::i32, .width = top_k});
  weights_ = plan.add_buffer({.name = "expert_weights", .width = top_k});
  inner_ = plan.add_buffer({.name = "expert_inner", .width = top_k * config.width});
  if (config.shared_width > 0) {
    shared_inner_ = plan.add_buffer({.name = "shared_inner", .width = config.shared_width});
    if (config.shared_mix) shared_mix_ = plan.add_buffer({.name = "shared_mix", .width = 1});
  }
}

void ExpertsRecorder::record(const ExpertsWeights& w, int32_t layer) {
  const std::string at = std::to_string(layer);
  const plan::Norm norm = {static_cast<bool>(w.norm), w.norm, norm_eps_};
  const plan::SharedExpert shared = {.gate = w.shared_gate,
                                     .up = w.shared_up,
                                     .down = w.shared_down,
                                     .mix = w.shared_mix,
                                     .inner = shared_inner_,
                                     .mix_logit = shared_mix_};
  plan::Router router = config_.router;
  router.selection_bias = w.selection_bias;
  plan_.add(plan::Route{.x = x_,
                        .norm = norm,
                        .weight = w.router,
                        .router = router,
                        .ids = ids_,
                        .weights = weights_},
            at + ".route");
  plan_.add(plan::ExpertsUp{.x = x_,
                            .norm = norm,
                            .gate = w.gate,
                            .up = w.up,
                            .activation = config_.activation,
                            .ids = ids_,
                            .inner = inner_,
                            .shared = shared},
            at + ".experts_up");
  plan_.add(plan::ExpertsDown{.inner = inner_,
                              .down = w.down,
                              .ids = ids_,
                              .weights = weights_,
                              .shared = shared,
                              .residual = result_},
            at + ".experts_down");
}

}  // namespace kapitsa::model
