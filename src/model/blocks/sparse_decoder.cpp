#include "model/blocks/sparse_decoder.h"

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/experts.h"
#include "model/blocks/rope.h"

#include <utility>

namespace kapitsa::model {

Result<Model> load_sparse_decoder(const weights::Checkpoint& file, const RecordOptions& options,
                                  std::string architecture) {
  ConfigReader reader(file, "qwen3moe");
  const AttentionConfig attention_config = read_attention(reader);
  const int32_t hidden = attention_config.hidden;
  const float eps = attention_config.norm_eps;
  const DecoderConfig decoder = read_decoder(reader, hidden);
  refuse_sliding_layers(reader);
  const RopeConfig rope = read_rope(reader, attention_config.head_dim);
  ExpertsConfig experts_config = read_experts(reader, hidden);
  experts_config.router.score = plan::RouterScore::softmax;
  // The default of transformers; GGUF has no key for it, published models all say true.
  experts_config.router.renormalise = reader.flag_or({"", "norm_topk_prob"}, reader.is_gguf());
  refuse_dense_layers(reader);
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = std::move(architecture);
  model.n_layers = decoder.n_layers;
  model.context_trained = decoder.context;
  Binder b(file, model);
  const DecoderWeights outer = bind_decoder(b, decoder, hidden);
  KAPITSA_TRY(b.status());

  plan::Plan& p = model.plan;
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  AttentionRecorder attention(p, attention_config, make_rope(rope, plan::RopePairs::half),
                              options.kv_dtype, x);
  ExpertsRecorder experts(p, experts_config, x, eps);
  for (int32_t i = 0; i < decoder.n_layers; ++i) {
    b.set_layer(i);
    const AttentionWeights attention_weights =
        bind_attention(b, attention_config, /*with_head_norms=*/true);
    const ExpertsWeights experts_weights = bind_experts(b, experts_config);
    KAPITSA_TRY(b.status());
    attention.record(attention_weights, i);
    experts.record(experts_weights, i);
  }
  end_decoder(p, decoder, outer, x, eps);
  return model;
}

}  // namespace kapitsa::model
