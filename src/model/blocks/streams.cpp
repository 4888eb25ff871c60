#include "model/blocks/streams.h"

namespace kapitsa::model {

const StreamMixNames kMixerStreams = {
    .norm = {"blk.{}.hc_attn_norm.weight", "model.layers.{}.attn_hyper_connection.hc_norm.weight"},
    .down = {"blk.{}.hc_attn_down.weight",
             "model.layers.{}.attn_hyper_connection.input_mix_weight_down.weight"},
    .up = {"blk.{}.hc_attn_up.weight",
           "model.layers.{}.attn_hyper_connection.input_mix_weight_up.weight"},
    .inject = {"blk.{}.hc_attn_inject.weight",
               "model.layers.{}.attn_hyper_connection.block_inject_weight.weight"}};
const StreamMixNames kMlpStreams = {
    .norm = {"blk.{}.hc_ffn_norm.weight", "model.layers.{}.mlp_hyper_connection.hc_norm.weight"},
    .down = {"blk.{}.hc_ffn_down.weight",
             "model.layers.{}.mlp_hyper_connection.input_mix_weight_down.weight"},
    .up = {"blk.{}.hc_ffn_up.weight",
           "model.layers.{}.mlp_hyper_connection.input_mix_weight_up.weight"},
    .inject = {"blk.{}.hc_ffn_inject.weight",
               "model.layers.{}.mlp_hyper_connection.block_inject_weight.weight"}};
const StreamMixNames kOutputStreams = {
    .norm = {"output_hc_norm.weight", "model.hyper_connection_mixer.hc_norm.weight"},
    .down = {"output_hc_down.weight", "model.hyper_connection_mixer.input_mix_weight_down.weight"},
    .up = {"output_hc_up.weight", "model.hyper_connection_mixer.input_mix_weight_up.weight"},
    .inject = {}};
const StreamMixNames kMtpStreams = {
    .norm = {"blk.{}.nextn.hc_head_norm.weight", "mtp.hyper_connection_mixer.hc_norm.weight"},
    .down = {"blk.{}.nextn.hc_head_down.weight",
             "mtp.hyper_connection_mixer.input_mix_weight_down.weight"},
    .up = {"blk.{}.nextn.hc_head_up.weight",
           "mtp.hyper_connection_mixer.input_mix_weight_up.weight"},
    .inject = {}};

StreamsConfig read_streams(ConfigReader& reader, int32_t hidden, float norm_eps) {
  constexpr Key kCount = {"hyper_connection.count", "hc_count"};
  StreamsConfig config;
  config.hidden = hidden;
  config.norm_eps = norm_eps;
  config.count = reader.count(kCount, 64);
  config.rank = reader.count({"hyper_connection.low_rank", "hc_lowrank"}, 1 << 20);
  if (config.count < 2) {
    reader.refuse(ErrorCode::unsupported, kCount, "2 or more streams",
                  std::to_string(config.count));
  }
  return config;
}

StreamMixWeights bind_stream_mix(Binder& binder, const StreamsConfig& config,
                                 const StreamMixNames& names) {
  StreamMixWeights w;
  w.norm = binder.norm(names.norm, config.width());
  w.down = binder.matrix(names.down, config.rank, config.width());
  w.up = binder.matrix(names.up, config.width(), config.rank);
  if (!names.inject.hf.empty()) {
    w.inject = binder.matrix(names.inject, config.count, config.width());
  }
  return w;
}

StreamsRecorder::StreamsRecorder(plan::Plan& plan, const StreamsConfig& config, plan::BufferId x)
    : plan_(plan), config_(config), x_(x) {
  mixed_ = plan.add_buffer({.name = "mixed", .width = config.hidden});
  result_ = plan.add_buffer({.name = "result", .width = config.hidden});
  inject_ = plan.add_buffer({.name = "inject", .width = config.count});
}

void StreamsRecorder::mix(const StreamMixWeights& w, std::string label) {
  plan_.add(plan::StreamMix{.x = x_,
                            .norm = {true, w.norm, config_.norm_eps},
                            .streams = config_.count,
                            .down = w.down,
                            .up = w.up,
                            .inject = w.inject,
                            .out = mixed_,
                            .inject_out = w.inject ? inject_ : plan::BufferId{}},
            std::move(label));
}

void StreamsRecorder::add(std::string label) {
  plan_.add(plan::StreamAdd{.y = result_, .inject = inject_, .x = x_}, std::move(label));
}

}  // namespace kapitsa::model
