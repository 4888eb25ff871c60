#include "model/blocks/decoder.h"

namespace kapitsa::model {
namespace {

constexpr TensorName kOutputNorm = {"output_norm.weight", "model.norm.weight"};
constexpr TensorName kOutput = {"output.weight", "lm_head.weight"};
constexpr TensorName kGate = {"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"};
constexpr TensorName kUp = {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"};
constexpr TensorName kDown = {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"};

constexpr int64_t kMaxVocab = 1 << 24;

}  // namespace

int32_t read_vocab(ConfigReader& reader, int32_t hidden, const TensorName& embedding) {
  const std::string name = file_name(reader.file(), embedding);
  const weights::Tensor* table = reader.file().find(name);
  if (table == nullptr || table->shape.size() != 2 || table->shape[0] > kMaxVocab) {
    reader.refuse(ErrorCode::corrupt_file, {"embedding_length", "hidden_size"},
                  "a tensor " + name + " of (vocabulary, " + std::to_string(hidden) + ")",
                  "another or none");
    return 1;
  }
  constexpr Key kVocab = {"vocab_size", "vocab_size"};
  const auto n_vocab = static_cast<int32_t>(table->shape[0]);
  const int32_t told = reader.count_or(kVocab, n_vocab, kMaxVocab);
  if (reader.is_gguf() ? told > n_vocab : told != n_vocab) {
    reader.refuse(ErrorCode::corrupt_file, kVocab,
                  std::to_string(n_vocab) + " like the rows of " + name, std::to_string(told));
  }
  return n_vocab;
}

void refuse_sliding_layers(ConfigReader& reader) {
  constexpr Key kTypes = {"", "layer_types"};
  if (!reader.has(kTypes)) return;
  for (const std::string_view type : reader.texts(kTypes)) {
    if (type != "full_attention")
      reader.refuse(ErrorCode::unsupported, kTypes, "full_attention", type);
  }
}

DecoderConfig read_decoder(ConfigReader& reader, int32_t hidden, const TensorName& embedding) {
  constexpr Key kMtpLayers = {"nextn_predict_layers", "mtp_num_hidden_layers"};
  DecoderConfig config;
  config.n_layers = reader.count({"block_count", "num_hidden_layers"}, 1000);
  config.n_mtp_layers = reader.optional_count(kMtpLayers, 16);
  if (reader.is_gguf()) {
    config.n_layers -= config.n_mtp_layers;
    if (config.n_layers < 1) {
      reader.refuse(ErrorCode::corrupt_file, kMtpLayers, "fewer layers than block_count",
                    std::to_string(config.n_mtp_layers));
    }
  }
  config.context = reader.count({"context_length", "max_position_embeddings"}, 1 << 28);
  config.may_be_tied = reader.flag_or({"", "tie_word_embeddings"}, true);
  config.n_vocab = read_vocab(reader, hidden, embedding);
  // What the shared blocks compute, whatever the architecture.
  reader.expect({"", "hidden_act"}, {"silu", "swish"});
  reader.expect_flag({"", "mlp_bias"}, false);
  reader.expect_flag({"", "use_sliding_window"}, false);
  return config;
}

DecoderWeights bind_decoder(Binder& binder, const DecoderConfig& config, int32_t hidden) {
  DecoderWeights w;
  w.embedding = binder.matrix(kTokenEmbedding, config.n_vocab, hidden);
  if (config.has_output_norm) w.output_norm = binder.norm(kOutputNorm, hidden);
  const bool tied = config.may_be_tied && !binder.has(kOutput);
  w.output = tied ? w.embedding : binder.matrix(kOutput, config.n_vocab, hidden);
  return w;
}

plan::BufferId begin_decoder(plan::Plan& plan, const DecoderWeights& weights, int32_t hidden,
                             const plan::Norm& embedding_norm, int32_t streams) {
  const auto x = plan.add_buffer({.name = "x", .width = int64_t{streams} * hidden});
  plan.begin_routine("decode");
  plan.add(
      plan::Embed{.table = weights.embedding, .norm = embedding_norm, .copies = streams, .out = x},
      "embed");
  return x;
}

void end_decoder(plan::Plan& plan, const DecoderConfig& config, const DecoderWeights& weights,
                 plan::BufferId x, float norm_eps) {
  plan.n_vocab = config.n_vocab;
  plan.logits = plan.add_buffer({.name = "logits",
                                 .width = config.n_vocab,
                                 .rows = plan::RowSpace::output,
                                 .readable = true});
  plan.add(
      plan::Head{.x = x,
                 .norm = {static_cast<bool>(weights.output_norm), weights.output_norm, norm_eps},
                 .weight = weights.output,
                 .scale = config.logit_scale,
                 .softcap = config.logit_softcap,
                 .logits = plan.logits},
      "head");
}

MlpWeights bind_mlp(Binder& binder, int32_t hidden, int32_t width, const TensorName& norm) {
  return {.norm = binder.norm(norm, hidden),
          .gate = binder.matrix(kGate, width, hidden),
          .up = binder.matrix(kUp, width, hidden),
          .down = binder.matrix(kDown, hidden, width)};
}

void record_mlp(plan::Plan& plan, const MlpWeights& w, plan::BufferId x, float norm_eps,
                int32_t layer) {
  plan.add(plan::Mlp{.x = x,
                     .norm = {true, w.norm, norm_eps},
                     .gate = w.gate,
                     .up = w.up,
                     .down = w.down,
                     .residual = {.out = x, .post_norm = w.post_norm}},
           std::to_string(layer) + ".mlp");
}

}  // namespace kapitsa::model
