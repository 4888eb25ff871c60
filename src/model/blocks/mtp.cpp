#include "model/blocks/mtp.h"

namespace kapitsa::model {
namespace {

constexpr TensorName kEmbedding = {"blk.{}.nextn.embed_tokens.weight", ""};
constexpr TensorName kOutput = {"blk.{}.nextn.shared_head_head.weight", ""};

}  // namespace

bool has_mtp(Binder& binder, const DecoderConfig& decoder, const MtpNames& names) {
  binder.set_mtp_layer(decoder.n_layers, 0);
  return binder.has(names.join);
}

MtpWeights bind_mtp(Binder& binder, const DecoderConfig& decoder, const DecoderWeights& trunk,
                    int32_t hidden, const MtpNames& names, int32_t streams) {
  binder.set_mtp_layer(decoder.n_layers, 0);
  const auto own_or = [&](const TensorName& name, plan::WeightId shared) {
    return binder.has(name) ? binder.matrix(name, decoder.n_vocab, hidden) : shared;
  };
  MtpWeights w;
  w.embedding = own_or(kEmbedding, trunk.embedding);
  w.embedding_norm = binder.norm(names.embedding_norm, hidden);
  w.hidden_norm = binder.norm(names.hidden_norm, int64_t{streams} * hidden);
  const bool in_halves = !binder.is_gguf() && !names.hidden_join.hf.empty();
  w.join = in_halves ? binder.columns(names.join, names.hidden_join, hidden, hidden)
                     : binder.matrix(names.join, hidden, int64_t{2} * hidden);
  w.output_norm =
      binder.has(names.output_norm) ? binder.norm(names.output_norm, hidden) : trunk.output_norm;
  w.output = own_or(kOutput, trunk.output);
  return w;
}

MtpRecorder::MtpRecorder(plan::Plan& plan, const DecoderWeights& trunk, plan::BufferId x,
                         float norm_eps)
    : plan_(plan), x_(x), norm_eps_(norm_eps) {
  hidden_ = plan.add_buffer({.name = "hidden", .width = plan.buffer(x).width, .readable = true});
  plan.features = hidden_;
  record_hidden(trunk.output_norm, "hidden");
}

void MtpRecorder::record_hidden(plan::WeightId weight, const char* label) {
  if (weight) {
    plan_.add(plan::RmsNorm{plan_.heads(x_), norm(weight), plan_.heads(hidden_)}, label);
  } else {
    plan_.add(plan::Copy{plan_.heads(x_), plan_.heads(hidden_)}, label);
  }
}

void MtpRecorder::begin(const MtpWeights& w) {
  const int64_t width = plan_.weight(w.embedding).in;
  const auto embedding = plan_.add_buffer({.name = "mtp_token", .width = width});
  plan_.begin_routine("mtp");
  plan_.add(plan::Embed{.table = w.embedding, .norm = {}, .out = embedding}, "mtp.embed");
  plan_.add(plan::MtpJoin{.embedding = embedding,
                          .hidden = hidden_,
                          .embedding_norm = norm(w.embedding_norm),
                          .hidden_norm = norm(w.hidden_norm),
                          .weight = w.join,
                          .out = x_,
                          .streams = static_cast<int32_t>(plan_.buffer(x_).width / width)},
            "mtp.join");
}

void MtpRecorder::end(const MtpWeights& w, plan::BufferId mixed) {
  record_hidden(w.output_norm, "mtp.hidden");
  plan_.add(
      plan::Head{
          .x = mixed ? mixed : hidden_, .norm = {}, .weight = w.output, .logits = plan_.logits},
      "mtp.head");
}

}  // namespace kapitsa::model
