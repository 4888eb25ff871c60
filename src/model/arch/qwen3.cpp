// Qwen3, dense (arXiv 2505.09388): the llama block with an RMS norm over each q and k head before
// rope, and a head size of its own. Rope pairs are halves in both file formats.
#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/rope.h"

namespace kapitsa::model {
namespace {

Result<Model> load(const weights::Checkpoint& file, const RecordOptions& options) {
  ConfigReader reader(file, "qwen3");
  const AttentionConfig attention_config = read_attention(reader);
  const int32_t hidden = attention_config.hidden;
  const float eps = attention_config.norm_eps;
  const DecoderConfig decoder = read_decoder(reader, hidden);
  refuse_sliding_layers(reader);
  const int32_t mlp_width = reader.count({"feed_forward_length", "intermediate_size"}, 1 << 22);
  const RopeConfig rope = read_rope(reader, attention_config.head_dim);
  KAPITSA_TRY(reader.status());

  Model model;
  model.architecture = "qwen3";
  model.n_layers = decoder.n_layers;
  model.context_trained = decoder.context;
  Binder b(file, model);
  const DecoderWeights outer = bind_decoder(b, decoder, hidden);

  plan::Plan& p = model.plan;
  KAPITSA_TRY(b.status());
  const plan::BufferId x = begin_decoder(p, outer, hidden);  // (rows, hidden)
  AttentionRecorder attention(p, attention_config, make_rope(rope, plan::RopePairs::half),
                              options.kv_dtype, x);
  for (int32_t i = 0; i < decoder.n_layers; ++i) {
    b.set_layer(i);
    const AttentionWeights attention_weights =
        bind_attention(b, attention_config, /*with_head_norms=*/true);
    const MlpWeights mlp = bind_mlp(b, hidden, mlp_width);
    KAPITSA_TRY(b.status());
    attention.record(attention_weights, i);
    record_mlp(p, mlp, x, eps, i);
  }
  end_decoder(p, decoder, outer, x, eps);
  return model;
}

}  // namespace

extern const ArchDef arch_qwen3;
const ArchDef arch_qwen3 = {
    .name = "qwen3", .gguf_names = {"qwen3"}, .model_types = {"qwen3"}, .load = load};

}  // namespace kapitsa::model
