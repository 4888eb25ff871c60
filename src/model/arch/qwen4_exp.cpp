// Qwen3.8-Flash-Next (released config; transformers, modeling_qwen4_exp): the mixers of Qwen3.5
// with a sigmoid gate behind the delta rule, and sparse attention; experts in every layer. Gated
// mixers of four residual streams stand in place of all norms of layers, and one layer adds a
// hashed n-gram embedding to the streams. One-plus RMS norms; GGUF orders value heads as in
// Qwen3.5, and selects blocks in the prediction head only where it has a ratio for it. MLX
// conversions do not agree on names, so that they are refused.
#include "model/blocks/attention.h"
#include "model/blocks/block_index.h"
#include "model/blocks/decoder.h"
#include "model/blocks/delta_mixer.h"
#include "model/blocks/experts.h"
#include "model/blocks/mtp.h"
#include "model/blocks/ngram.h"
#include "model/blocks/rope.h"
#include "model/blocks/streams.h"

namespace kapitsa::model {
namespace {

constexpr double kRopeShare = 0.25;  // of a head, where the file does not say

constexpr MtpNames kHeadNames = {.join = {kMtpNames.join.gguf, "mtp.fc_embedding.weight"},
                                 .embedding_norm = kMtpNames.embedding_norm,
                                 .hidden_norm = kMtpNames.hidden_norm,
                                 .output_norm = {},
                                 .hidden_join = {"", "mtp.fc_hidden.weight"}};

struct Config {
  AttentionConfig attention;
  DeltaConfig delta;
  ExpertsConfig experts;
  RopeConfig rope;
  DecoderConfig decoder;
  StreamsConfig streams;
  BlockIndexConfig index;
  NgramConfig ngram;
  std::vector<bool> is_delta;  // one for each layer, the prediction head's last
};

Config read_config(ConfigReader& reader) {
  constexpr Key kGate = {"", "attn_output_gate"};
  Config config;
  config.attention = read_attention(reader);
  config.attention.output_gate = true;
  config.attention.norm = {};
  const int32_t hidden = config.attention.hidden;
  const float eps = config.attention.norm_eps;
  config.decoder = read_decoder(reader, hidden);
  config.decoder.has_output_norm = false;
  config.delta = read_delta(reader, hidden, eps);
  config.delta.norm = {};
  if (reader.is_gguf()) {
    config.delta.head_map = plan::HeadMap::tiled;
    config.delta.gate = plan::Activation::sigmoid;
  }
  const int32_t n_layers = config.decoder.n_layers;
  config.is_delta = read_delta_layers(reader, n_layers, "indexed_attention");
  config.is_delta.push_back(false);
  config.rope = read_rope(reader, config.attention.head_dim, kRopeShare);
  config.experts = read_experts(reader, hidden);
  config.experts.norm = {};
  config.experts.shared_width = reader.count(kSharedWidth, 1 << 20);
  config.experts.router.score = plan::RouterScore::softmax;
  config.experts.router.renormalise = reader.flag_or({"", "norm_topk_prob"}, true);
  config.streams = read_streams(reader, hidden, eps);
  std::vector<bool> attends = config.is_delta;
  attends.flip();
  config.index =
      read_block_index(reader, config.attention, n_layers, std::move(attends), config.rope.dims);
  config.ngram = read_ngram(reader, hidden, n_layers, config.decoder.n_vocab);
  if (!reader.flag_or(kGate, true)) {
    reader.refuse(ErrorCode::unsupported, kGate, "true (gated attention)", "false");
  }
  return config;
}

// Records the layers one after another.
class Layers {
public:
  Layers(plan::Plan& plan, const Config& config, DType kv_dtype, plan::BufferId x)
      : plan_(plan), config_(config), x_(x), streams_(plan, config.streams, x),
        delta_(plan, config.delta, streams_.mixed(), streams_.result()),
        index_(plan, config.index, rope(), kv_dtype, streams_.mixed()),
        attention_(plan, config.attention, rope(), kv_dtype, streams_.mixed(), streams_.result()),
        experts_(plan, config.experts, streams_.mixed(), config.attention.norm_eps,
                 streams_.result()) {}

  StreamsRecorder& streams() { return streams_; }

  // The binder's current layer.
  Status record(Binder& b, int32_t layer) {
    const std::string at = std::to_string(layer);
    if (layer == config_.ngram.layer) {
      KAPITSA_TRY(record_ngram(plan_, b, config_.ngram, config_.streams, x_));
    }
    const StreamMixWeights before_mixer = bind_stream_mix(b, config_.streams, kMixerStreams);
    KAPITSA_TRY(b.status());
    streams_.mix(before_mixer, at + ".mix");
    KAPITSA_TRY(record_mixer(b, layer));
    streams_.add(at + ".inject");

    const StreamMixWeights before_mlp = bind_stream_mix(b, config_.streams, kMlpStreams);
    const ExpertsWeights experts = bind_experts(b, config_.experts);
    KAPITSA_TRY(b.status());
    streams_.mix(before_mlp, at + ".mlp_mix");
    experts_.record(experts, layer);
    streams_.add(at + ".mlp_inject");
    return {};
  }

private:
  plan::Rope rope() const { return make_rope(config_.rope, plan::RopePairs::half); }

  Status record_mixer(Binder& b, int32_t layer) {
    if (config_.is_delta[static_cast<size_t>(layer)]) {
      const DeltaWeights delta = bind_delta(b, config_.delta);
      KAPITSA_TRY(b.status());
      delta_.record(delta, layer);
      return {};
    }
    BlockSelection selection;
    if (config_.index.selects[static_cast<size_t>(layer)]) {
      const BlockIndexWeights index = bind_block_index(b, config_.index);
      KAPITSA_TRY(b.status());
      selection = index_.record(index, layer);
    }
    const AttentionWeights attention =
        bind_attention(b, config_.attention, /*with_head_norms=*/true);
    KAPITSA_TRY(b.status());
    attention_.record(attention, layer, selection);
    return {};
  }

  plan::Plan& plan_;
  const Config& config_;
  plan::BufferId x_;  // the streams (rows, count * hidden)
  StreamsRecorder streams_;
  DeltaRecorder delta_;
  BlockIndexRecorder index_;
  AttentionRecorder attention_;
  ExpertsRecorder experts_;
};

Status record_mtp(plan::Plan& plan, Binder& b, const Config& config, const DecoderWeights& trunk,
                  plan::BufferId x, Layers& layers) {
  MtpRecorder head(plan, trunk, x, config.attention.norm_eps);
  const MtpWeights mtp =
      bind_mtp(b, config.decoder, trunk, config.streams.hidden, kHeadNames, config.streams.count);
  const StreamMixWeights output = bind_stream_mix(b, config.streams, kMtpStreams);
  KAPITSA_TRY(b.status());
  head.begin(mtp);
  KAPITSA_TRY(layers.record(b, config.decoder.n_layers));
  layers.streams().mix(output, "mtp.mix");
  head.end(mtp, layers.streams().mixed());
  return {};
}

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  if (file.format() == weights::Format::mlx) {
    return Error{ErrorCode::unsupported, file.path().string() +
                                             ": qwen4_exp in an MLX conversion is not supported, "
                                             "expected the released folder or a GGUF file"};
  }
  ConfigReader reader(file, "qwen4exp", text_config_prefix(file));
  const Config config = read_config(reader);
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = "qwen4_exp";
  model.n_layers = config.decoder.n_layers;
  model.context_trained = config.decoder.context;
  Binder b(file, model);
  b.set_norm_offset(one_plus_norm_offset(file));
  const int32_t hidden = config.streams.hidden;
  const DecoderWeights outer = bind_decoder(b, config.decoder, hidden);
  const StreamMixWeights output = bind_stream_mix(b, config.streams, kOutputStreams);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden, {}, config.streams.count);
  Layers layers(p, config, options.kv_dtype, x);
  for (int32_t i = 0; i < model.n_layers; ++i) {
    b.set_layer(i);
    KAPITSA_TRY(layers.record(b, i));
  }
  layers.streams().mix(output, "output_mix");
  end_decoder(p, config.decoder, outer, layers.streams().mixed(), config.attention.norm_eps);
  if (options.mtp && has_mtp(b, config.decoder, kHeadNames)) {
    KAPITSA_TRY(record_mtp(p, b, config, outer, x, layers));
  }
  return model;
}

}  // namespace

extern const ArchDef arch_qwen4_exp;
const ArchDef arch_qwen4_exp = {.name = "qwen4_exp",
                                .gguf_names = {"qwen4exp"},
                                .model_types = {"qwen4_exp", "qwen4_exp_text"},
                                .load = load};

}  // namespace kapitsa::model
