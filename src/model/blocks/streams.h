// Residual streams in place of one residual and its norms (transformers, modeling_qwen4_exp, there
// hyper-connections): a gated mixer of low rank makes the input of each half of a layer from all
// streams, and the half's result joins each stream by a factor of its own.
#pragma once

#include "model/binder.h"
#include "model/config.h"

namespace kapitsa::model {

struct StreamsConfig {
  int32_t hidden = 0;  // of one stream
  int32_t count = 0;
  int32_t rank = 0;  // of the mixer
  float norm_eps = 0.0F;

  int32_t width() const { return count * hidden; }
};

// Refuses less than two streams.
StreamsConfig read_streams(ConfigReader& reader, int32_t hidden, float norm_eps);

struct StreamMixNames {
  TensorName norm, down, up;
  TensorName inject;  // of a mixer whose input has a result to give back
};
extern const StreamMixNames kMixerStreams;   // before a layer's first half
extern const StreamMixNames kMlpStreams;     // before its second half
extern const StreamMixNames kOutputStreams;  // in place of the final norm
extern const StreamMixNames kMtpStreams;     // in place of that of a prediction head

struct StreamMixWeights {
  plan::WeightId norm;    // (count * hidden)
  plan::WeightId down;    // (rank, count * hidden)
  plan::WeightId up;      // (count * hidden, rank)
  plan::WeightId inject;  // optional (count, count * hidden)
};
StreamMixWeights bind_stream_mix(Binder& binder, const StreamsConfig& config,
                                 const StreamMixNames& names);

class StreamsRecorder {
public:
  // x: the streams (rows, count * hidden).
  StreamsRecorder(plan::Plan& plan, const StreamsConfig& config, plan::BufferId x);

  // What the mixers make: the input of a half (rows, hidden).
  plan::BufferId mixed() const { return mixed_; }
  // Where a half leaves its result (rows, hidden).
  plan::BufferId result() const { return result_; }

  void mix(const StreamMixWeights& weights, std::string label);
  // Gives result() to the streams, by the factors of the last mix().
  void add(std::string label);

private:
  plan::Plan& plan_;
  StreamsConfig config_;
  plan::BufferId x_, mixed_, result_;
  plan::BufferId inject_;  // (rows, count)
};

}  // namespace kapitsa::model
