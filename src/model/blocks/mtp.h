// The ends of a multi-token-prediction head (DeepSeek-V3, arXiv 2412.19437, as Qwen3-Next, Qwen3.5
// and Qwen3.8-Flash-Next use it); its one layer is a layer like the trunk's. At position t it takes
// the embedding of token t + 1 and the trunk's hidden state of t, normed where the trunk has a
// final norm, and predicts token t + 2 with the trunk's output matrix. It is a routine of its own,
// "mtp", whose row r reads what the pass before left as the hidden state of its row r: the trunk's,
// or for the next draft its own.
#pragma once

#include "model/blocks/decoder.h"

namespace kapitsa::model {

// What the tensors at the ends of a head are called.
struct MtpNames {
  TensorName join, embedding_norm, hidden_norm, output_norm;
  TensorName hidden_join = {};  // the right half of join, where the file has it apart
};
inline constexpr MtpNames kMtpNames = {
    .join = {"blk.{}.nextn.eh_proj.weight", "mtp.fc.weight"},
    .embedding_norm = {"blk.{}.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
    .hidden_norm = {"blk.{}.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
    .output_norm = {"blk.{}.nextn.shared_head_norm.weight", "mtp.norm.weight"}};

// Whether the file has a head.
bool has_mtp(Binder& binder, const DecoderConfig& decoder, const MtpNames& names = kMtpNames);

struct MtpWeights {
  plan::WeightId embedding;       // (vocab, hidden)
  plan::WeightId embedding_norm;  // (hidden)
  plan::WeightId hidden_norm;     // (streams * hidden)
  plan::WeightId join;            // (hidden, 2 * hidden)
  plan::WeightId output_norm;     // optional (hidden)
  plan::WeightId output;          // (vocab, hidden)
};

// Makes the head's layer the binder's current one. What the head does not have, it shares.
MtpWeights bind_mtp(Binder& binder, const DecoderConfig& decoder, const DecoderWeights& trunk,
                    int32_t hidden, const MtpNames& names = kMtpNames, int32_t streams = 1);

class MtpRecorder {
public:
  // x: the residual streams (rows, streams * hidden). Ends the trunk's routine: hidden = Norm(x),
  // or x, of every row, the plan's features.
  MtpRecorder(plan::Plan& plan, const DecoderWeights& trunk, plan::BufferId x, float norm_eps);

  // Begins the head's routine: x_s = W [Norm(embedding) ; Norm(hidden_s)] for each stream s.
  void begin(const MtpWeights& weights);
  // hidden = Norm(x), or x, and the logits of `mixed` (rows, hidden), or else of hidden.
  void end(const MtpWeights& weights, plan::BufferId mixed = {});

private:
  void record_hidden(plan::WeightId norm, const char* label);
  plan::Norm norm(plan::WeightId weight) const { return {true, weight, norm_eps_}; }

  plan::Plan& plan_;
  plan::BufferId x_;
  float norm_eps_;
  plan::BufferId hidden_;  // (rows, streams * hidden)
};

}  // namespace kapitsa::model
