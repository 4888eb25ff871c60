#include "model/blocks/block_index.h"

#include <fmt/format.h>

namespace kapitsa::model {
namespace {

constexpr TensorName kJoined = {"", "model.layers.{}.self_attn.indexer.index_qk_proj.weight"};
constexpr TensorName kQ = {"blk.{}.indexer.q_proj.weight", ""};
constexpr TensorName kK = {"blk.{}.indexer.k_proj.weight", ""};
constexpr TensorName kQNorm = {"blk.{}.indexer.q_norm.weight",
                               "model.layers.{}.self_attn.indexer.q_layernorm.weight"};
constexpr TensorName kKNorm = {"blk.{}.indexer.k_norm.weight",
                               "model.layers.{}.self_attn.indexer.k_layernorm.weight"};

constexpr int64_t kMaxRatio = 4096;  // tokens

// GGUF has a ratio for each block; a block without one, as prediction heads may be, has 0.
void read_ratios(ConfigReader& reader, int32_t n_layers, BlockIndexConfig& config) {
  constexpr Key kRatios = {"attention.compress_ratios", ""};
  std::vector<int64_t> ratios = reader.integers(kRatios, 0, kMaxRatio);
  if (std::ssize(ratios) < n_layers) {
    reader.refuse(ErrorCode::corrupt_file, kRatios, fmt::format("{} layers", n_layers),
                  std::to_string(ratios.size()));
  }
  ratios.resize(config.selects.size());
  for (size_t i = 0; i < ratios.size(); ++i) {
    config.selects[i] = config.selects[i] && ratios[i] != 0;
    if (!config.selects[i]) continue;
    if (config.ratio == 0) config.ratio = static_cast<int32_t>(ratios[i]);
    if (ratios[i] != config.ratio) {
      reader.refuse(ErrorCode::unsupported, kRatios, "one ratio for all layers that select",
                    fmt::format("{} and {}", config.ratio, ratios[i]));
    }
  }
}

}  // namespace

BlockIndexConfig read_block_index(ConfigReader& reader, const AttentionConfig& attention,
                                  int32_t n_layers, std::vector<bool> attends, int32_t rope_dims) {
  constexpr Key kKeyHeads = {"", "indexer_kv_heads"};
  constexpr Key kDim = {"attention.indexer.key_length", "indexer_head_dim"};
  constexpr Key kBudget = {"attention.indexer.top_k", "indexer_budget"};
  BlockIndexConfig config;
  config.hidden = attention.hidden;
  config.norm_eps = attention.norm_eps;
  config.selects = std::move(attends);
  config.n_heads = reader.count({"attention.indexer.head_count", "indexer_n_heads"}, 4096);
  config.dim = reader.count(kDim, 4096);
  const int32_t tokens = reader.count(kBudget, 1 << 28);
  if (reader.is_gguf()) {
    read_ratios(reader, n_layers, config);
  } else {
    config.ratio = reader.count({"", "indexer_compress_ratio"}, kMaxRatio);
  }
  if (const int32_t n = reader.count_or(kKeyHeads, 1, 4096); n != 1) {
    reader.refuse(ErrorCode::unsupported, kKeyHeads, "1", std::to_string(n));
  }
  if (config.ratio == 0) return config;
  config.budget = tokens / config.ratio;
  if (tokens % config.ratio != 0) {
    reader.refuse(ErrorCode::corrupt_file, kBudget,
                  fmt::format("a multiple of {} tokens", config.ratio), std::to_string(tokens));
  }
  if (config.dim < rope_dims) {
    reader.refuse(ErrorCode::corrupt_file, kDim,
                  fmt::format("{} rotary elements or more", rope_dims), std::to_string(config.dim));
  }
  return config;
}

BlockIndexWeights bind_block_index(Binder& binder, const BlockIndexConfig& config) {
  BlockIndexWeights w;
  const int32_t q_width = config.n_heads * config.dim;
  if (binder.is_gguf()) {
    w.q = binder.matrix(kQ, q_width, config.hidden);
    w.k = binder.matrix(kK, config.dim, config.hidden);
  } else {
    w.q = binder.matrix(kJoined, q_width + config.dim, config.hidden);
  }
  w.q_norm = binder.norm(kQNorm, config.dim);
  w.k_norm = binder.norm(kKNorm, config.dim);
  return w;
}

BlockIndexRecorder::BlockIndexRecorder(plan::Plan& plan, const BlockIndexConfig& config,
                                       plan::Rope rope, DType kv_dtype, plan::BufferId x)
    : plan_(plan), config_(config), rope_(std::move(rope)),
      // Keys of a block are averaged, which no cache of quantised blocks is for.
      key_dtype_(dtype_info(kv_dtype).block_elements > 1 ? DType::f16 : kv_dtype), x_(x) {}

BlockSelection BlockIndexRecorder::record(const BlockIndexWeights& w, int32_t layer) {
  const std::string at = std::to_string(layer);
  const int32_t n = config_.n_heads;
  const int32_t dim = config_.dim;
  const int32_t q_width = n * dim;
  const auto norm = [&](plan::WeightId weight) {
    return plan::Norm{true, weight, config_.norm_eps};
  };
  const plan::BufferId blocks =
      plan_.scratch("index_blocks", int64_t{config_.budget} + 1, DType::i32);
  const auto key_cache =
      plan_.add_state({.name = "index_k." + at, .dtype = key_dtype_, .width = dim});
  plan::NormLinear linear = {.x = x_, .norm = {}, .projections = {}};
  plan::Heads q, k;
  if (w.k) {
    q = plan_.heads(plan_.scratch("index_q", q_width), n);
    k = plan_.heads(plan_.scratch("index_k", dim));
    linear.projections = {{w.q, {}, q.buffer}, {w.k, {}, k.buffer}};
  } else {
    const auto joined = plan_.scratch("index_qk", q_width + dim);
    q = {joined, n, dim, dim, 0};
    k = {joined, 1, dim, dim, q_width};
    linear.projections = {{w.q, {}, joined}};
  }
  plan_.add(std::move(linear), at + ".index_qk");
  plan_.add(plan::IndexSelect{.q = q,
                              .k = k,
                              .q_norm = norm(w.q_norm),
                              .select = {.q = q,
                                         .key_cache = key_cache,
                                         .key_norm = norm(w.k_norm),
                                         .rope = rope_,
                                         .ratio = config_.ratio,
                                         .budget = config_.budget,
                                         .out = blocks}},
            at + ".index_select");
  return {.blocks = blocks, .block_size = config_.ratio};
}

}  // namespace kapitsa::model
