#include "model/blocks/ngram.h"

#include <fmt/format.h>

namespace kapitsa::model {
namespace {

constexpr TensorName kKey = {"blk.{}.ple_key.weight", "model.layers.{}.ple.key_proj.weight"};
constexpr TensorName kValue = {"blk.{}.ple_value.weight", "model.layers.{}.ple.value_proj.weight"};
constexpr TensorName kKeyNorm = {"blk.{}.ple_norm_key.weight",
                                 "model.layers.{}.ple.norm_key.weight"};
constexpr TensorName kQueryNorm = {"blk.{}.ple_norm_query.weight",
                                   "model.layers.{}.ple.norm_query.weight"};
constexpr TensorName kConvNorm = {"blk.{}.ple_norm_conv.weight",
                                  "model.layers.{}.ple.norm_conv.weight"};
constexpr TensorName kConv = {"blk.{}.ple_conv1d.weight", "model.layers.{}.ple.conv1d.weight"};
constexpr TensorName kMultipliers = {"", "model.layers.{}.ple.ple_embedding.layer_multipliers"};
constexpr TensorName kOffsets = {"", "model.layers.{}.ple.ple_embedding.ngram_heads_offsets"};
constexpr TensorName kVocab = {"", "model.layers.{}.ple.ple_embedding.ngram_heads_vocab_sizes"};
// The table: one tensor in GGUF; parts of equal size, the second "{}", in Hugging Face checkpoints.
constexpr TensorName kTable = {"per_layer_token_embd.weight", ""};
constexpr std::string_view kPart =
    "model.layers.{}.ple.ple_embedding.ngram_embedding.shard_{}.weight";

constexpr int64_t kMaxRows = int64_t{1} << 40;

// Layers count from 0 in GGUF and from 1 in config.json.
int32_t read_layer(ConfigReader& reader, int32_t n_layers) {
  constexpr Key kLayers = {"ple.layers", "ple_layer_ids"};
  if (!reader.has(kLayers)) return -1;
  const int32_t first = reader.is_gguf() ? 0 : 1;
  const auto layers = reader.integers(kLayers, first, int64_t{n_layers} - 1 + first);
  if (layers.size() > 1) {
    reader.refuse(ErrorCode::unsupported, kLayers, "one layer at most",
                  std::to_string(layers.size()));
  }
  return layers.empty() ? -1 : static_cast<int32_t>(layers[0]) - first;
}

int32_t read_dim(ConfigReader& reader, int32_t hidden, int32_t n_heads) {
  if (reader.is_gguf()) return reader.count({"embedding_length_per_layer_input", ""}, 1 << 20);
  constexpr Key kWidth = {"", "ple_embed_dim"};
  const int32_t width = reader.count_or(kWidth, hidden, 1 << 24);
  if (width % n_heads != 0) {
    reader.refuse(ErrorCode::corrupt_file, kWidth, fmt::format("a multiple of {} heads", n_heads),
                  std::to_string(width));
  }
  return width / n_heads;
}

// The hash restarts after this token; the first where config.json lists several, as transformers
// takes it.
int32_t read_eos(ConfigReader& reader, int32_t n_vocab) {
  constexpr Key kEos = {"ple.eos_token_id", "eos_token_id"};
  const auto ids = reader.integers(kEos, 0, int64_t{n_vocab} - 1);
  if (ids.empty()) reader.refuse(ErrorCode::corrupt_file, kEos, "a token", "none");
  return ids.empty() ? -1 : static_cast<int32_t>(ids[0]);
}

std::vector<int64_t> read_constants(ConfigReader& reader, const Key& key, int32_t n) {
  auto values = reader.integers(key, 0, weights::Checkpoint::kMaxInteger);
  if (std::ssize(values) != n) {
    reader.refuse(ErrorCode::corrupt_file, key, std::to_string(n) + " numbers",
                  std::to_string(values.size()));
  }
  return values;
}

// The rows of a part are what the file has; whether they are enough is checked with the heads.
int64_t rows_of_part(const weights::Checkpoint& file, int32_t layer) {
  std::string name = file_name(file, {kTable.gguf, kPart});
  for (const int32_t number : {layer, 0}) {
    if (const size_t place = name.find("{}"); place != std::string::npos) {
      name.replace(place, 2, std::to_string(number));
    }
  }
  const weights::Tensor* tensor = file.find(name);
  return tensor != nullptr && tensor->shape.size() == 2 ? tensor->shape[0] : 0;
}

// For the error about a table that is not there.
int64_t rows_needed(const plan::NgramRows& rows) {
  int64_t needed = 0;
  for (size_t h = 0; h < rows.head_vocab.size(); ++h) {
    needed = std::max(needed, std::min(rows.head_offsets[h], kMaxRows) +
                                  std::min(rows.head_vocab[h], kMaxRows));
  }
  return needed;
}

void check_heads(Binder& binder, const plan::NgramRows& rows, int64_t n_rows) {
  for (size_t h = 0; h < rows.head_vocab.size(); ++h) {
    const int64_t offset = rows.head_offsets[h];
    const int64_t vocab = rows.head_vocab[h];
    if (offset < 0 || vocab < 1 || offset > n_rows || vocab > n_rows - offset) {
      binder.fail(ErrorCode::corrupt_file,
                  fmt::format("n-gram head {}: expected rows within a table of {}, found {} from "
                              "row {} on",
                              h, n_rows, vocab, offset));
      return;
    }
  }
}

plan::NgramRows bind_rows(plan::Plan& plan, Binder& binder, const NgramConfig& config) {
  const int32_t n_heads = config.n_heads();
  plan::NgramRows rows = {.table = {},
                          .multipliers = config.multipliers,
                          .head_offsets = config.head_offsets,
                          .head_vocab = config.head_vocab,
                          .heads_per_ngram = config.heads_per_ngram,
                          .eos_token = config.eos_token,
                          .out = {}};
  const bool in_parts = config.multipliers.empty();
  if (in_parts) {
    rows.multipliers = binder.integers(kMultipliers, config.n_tokens);
    rows.head_offsets = binder.integers(kOffsets, n_heads);
    rows.head_vocab = binder.integers(kVocab, n_heads);
  }
  const int64_t wanted = (rows_needed(rows) + config.n_parts - 1) / config.n_parts;
  const int64_t part_rows = config.part_rows > 0 ? config.part_rows : wanted;
  rows.table = in_parts ? binder.experts({.stacked = {}, .single = kPart}, config.n_parts,
                                         part_rows, config.dim)
                        : binder.matrix(kTable, part_rows, config.dim);
  check_heads(binder, rows, config.n_parts * part_rows);
  rows.out = plan.scratch("ngram_rows", int64_t{n_heads} * config.dim);
  return rows;
}

}  // namespace

NgramConfig read_ngram(ConfigReader& reader, int32_t hidden, int32_t n_layers, int32_t n_vocab) {
  constexpr Key kTokens = {"ple.ngram_size", "ngram_size"};
  constexpr Key kTaps = {"ple.conv_kernel", "ple_conv_kernel_size"};
  NgramConfig config;
  config.layer = read_layer(reader, n_layers);
  if (config.layer < 0) return config;
  config.n_tokens = reader.count(kTokens, 16);
  config.heads_per_ngram = reader.count({"ple.heads_per_ngram", "heads_per_ngram"}, 1024);
  config.taps = reader.count(kTaps, 64);
  if (config.n_tokens < 2) {
    reader.refuse(ErrorCode::unsupported, kTokens, "2 or more tokens",
                  std::to_string(config.n_tokens));
  }
  if (config.taps < 2) {
    reader.refuse(ErrorCode::unsupported, kTaps, "2 or more taps", std::to_string(config.taps));
  }
  config.eos_token = read_eos(reader, n_vocab);
  config.dim = read_dim(reader, hidden, std::max(config.n_heads(), 1));
  if (reader.is_gguf()) {
    config.multipliers = read_constants(reader, {"ple.layer_multipliers", ""}, config.n_tokens);
    config.head_offsets = read_constants(reader, {"ple.head_offsets", ""}, config.n_heads());
    config.head_vocab = read_constants(reader, {"ple.head_vocab_sizes", ""}, config.n_heads());
  } else {
    config.n_parts = reader.count({"", "split_ngram_parts"}, 65536);
  }
  config.part_rows = std::min(rows_of_part(reader.file(), config.layer), kMaxRows);
  return config;
}

Status record_ngram(plan::Plan& plan, Binder& binder, const NgramConfig& config,
                    const StreamsConfig& streams, plan::BufferId x) {
  const int32_t wide = streams.width();
  const int64_t embedded = int64_t{config.n_heads()} * config.dim;
  const auto norm = [&](const TensorName& name) {
    return plan::Norm{true, binder.norm(name, wide), streams.norm_eps};
  };
  plan::NgramEmbed op = {.rows = bind_rows(plan, binder, config),
                         .key = binder.matrix(kKey, wide, embedded),
                         .value = binder.matrix(kValue, streams.hidden, embedded),
                         .key_norm = norm(kKeyNorm),
                         .query_norm = norm(kQueryNorm),
                         .conv_norm = norm(kConvNorm),
                         .streams = streams.count,
                         .conv = binder.filter(kConv, wide, config.taps),
                         .taps = config.taps,
                         .dilation = config.n_tokens,
                         .memory = {},
                         .x = x};
  KAPITSA_TRY(binder.status());
  const int64_t remembered = int64_t{config.taps - 1} * config.n_tokens * wide;
  op.memory.state =
      plan.add_state({.name = "ngram", .kind = plan::StateKind::recurrent, .width = remembered});
  op.memory.tape =
      plan.add_state({.name = "ngram.tape", .kind = plan::StateKind::tape, .width = wide});
  plan.n_history = config.n_tokens - 1;
  plan.add(std::move(op), std::to_string(config.layer) + ".ngram");
  return {};
}

}  // namespace kapitsa::model
