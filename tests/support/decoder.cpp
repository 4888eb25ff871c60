#include "support/decoder.h"

#include "base/check.h"
#include "weights/quantise.h"

#include <cmath>
#include <functional>
#include <string>

namespace kapitsa::test {
namespace {

// Where weights come from: name as in GGUF, shape (out, in).
using WeightSource =
    std::function<Result<plan::Weight>(const std::string& name, int64_t out, int64_t in)>;

std::vector<float> rope_frequencies(const DecoderShape& shape) {
  std::vector<float> frequencies;
  for (int32_t i = 0; i < shape.head_dim; i += 2)
    frequencies.push_back(
        static_cast<float>(std::pow(shape.rope_theta, -static_cast<double>(i) / shape.head_dim)));
  return frequencies;
}

class Builder {
public:
  Builder(Decoder& decoder, const WeightSource& source) : d_(decoder), source_(source) {}

  Status build() {
    const DecoderShape& s = d_.shape;
    x_ = buffer("x", s.hidden, true);
    q_ = buffer("q", int64_t{s.n_heads} * s.head_dim);
    k_ = buffer("k", int64_t{s.n_kv_heads} * s.head_dim);
    v_ = buffer("v", int64_t{s.n_kv_heads} * s.head_dim);
    attended_ = buffer("attended", int64_t{s.n_heads} * s.head_dim);
    d_.hidden = x_;
    d_.plan.begin_routine("trunk");
    KAPITSA_ASSIGN(const plan::WeightId table, weight("token_embd", s.vocab, s.hidden));
    d_.plan.add(plan::Embed{.table = table, .out = x_}, "embed");
    for (int64_t layer = 0; layer < s.n_layers; ++layer)
      KAPITSA_TRY(add_layer("blk." + std::to_string(layer) + "."));
    return add_head(table);
  }

private:
  plan::BufferId buffer(const std::string& name, int64_t width, bool readable = false) {
    return d_.plan.add_buffer({.name = name, .width = width, .readable = readable});
  }
  Result<plan::WeightId> weight(const std::string& name, int64_t out, int64_t in) {
    KAPITSA_ASSIGN(plan::Weight w, source_(name + ".weight", out, in));
    return d_.plan.add_weight(std::move(w));
  }
  Result<plan::Norm> norm(const std::string& name, int64_t n) {
    KAPITSA_ASSIGN(const plan::WeightId w, weight(name, 1, n));
    return plan::Norm{.present = true, .weight = w, .eps = d_.shape.eps};
  }

  Status add_layer(const std::string& prefix) {
    const DecoderShape& s = d_.shape;
    const int64_t kv_width = int64_t{s.n_kv_heads} * s.head_dim;
    KAPITSA_ASSIGN(const plan::Norm attention_norm, norm(prefix + "attn_norm", s.hidden));
    KAPITSA_ASSIGN(const plan::WeightId wq,
                   weight(prefix + "attn_q", int64_t{s.n_heads} * s.head_dim, s.hidden));
    KAPITSA_ASSIGN(const plan::WeightId wk, weight(prefix + "attn_k", kv_width, s.hidden));
    KAPITSA_ASSIGN(const plan::WeightId wv, weight(prefix + "attn_v", kv_width, s.hidden));
    d_.plan.add(plan::NormLinear{x_, attention_norm, {{wq, {}, q_}, {wk, {}, k_}, {wv, {}, v_}}},
                prefix + "qkv");

    const auto cache = [&](const char* name) {
      return d_.plan.add_state({.name = prefix + name, .dtype = s.cache, .width = kv_width});
    };
    const plan::StateId k_cache = cache("k");
    const plan::StateId v_cache = cache("v");
    const plan::Heads q = d_.plan.heads(q_, s.n_heads);
    plan::AttentionPrepare prepare = {
        .q = q,
        .k = d_.plan.heads(k_, s.n_kv_heads),
        .v = d_.plan.heads(v_, s.n_kv_heads),
        .rope = {.inv_freq = rope_frequencies(s), .pairs = s.rope_pairs},
        .k_cache = k_cache,
        .v_cache = v_cache};
    if (s.qk_norm) {
      KAPITSA_ASSIGN(prepare.q_norm, norm(prefix + "attn_q_norm", s.head_dim));
      KAPITSA_ASSIGN(prepare.k_norm, norm(prefix + "attn_k_norm", s.head_dim));
    }
    d_.plan.add(prepare, prefix + "prepare");
    d_.plan.add(
        plan::Attention{.attend = {.q = q,
                                   .k_cache = k_cache,
                                   .v_cache = v_cache,
                                   .n_kv_heads = s.n_kv_heads,
                                   .scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim)),
                                   .window = s.window,
                                   .out = d_.plan.heads(attended_, s.n_heads)}},
        prefix + "attention");
    KAPITSA_ASSIGN(const plan::WeightId wo,
                   weight(prefix + "attn_output", s.hidden, int64_t{s.n_heads} * s.head_dim));
    d_.plan.add(plan::LinearAdd{.in = attended_, .weight = wo, .residual = {.out = x_}},
                prefix + "attention_out");
    return add_mlp(prefix);
  }

  Status add_mlp(const std::string& prefix) {
    const DecoderShape& s = d_.shape;
    KAPITSA_ASSIGN(const plan::Norm ffn_norm, norm(prefix + "ffn_norm", s.hidden));
    KAPITSA_ASSIGN(const plan::WeightId gate, weight(prefix + "ffn_gate", s.ff, s.hidden));
    KAPITSA_ASSIGN(const plan::WeightId up, weight(prefix + "ffn_up", s.ff, s.hidden));
    KAPITSA_ASSIGN(const plan::WeightId down, weight(prefix + "ffn_down", s.hidden, s.ff));
    d_.plan.add(plan::Mlp{.x = x_,
                          .norm = ffn_norm,
                          .gate = gate,
                          .up = up,
                          .down = down,
                          .residual = {.out = x_}},
                prefix + "mlp");
    return {};
  }

  Status add_head(plan::WeightId table) {
    const DecoderShape& s = d_.shape;
    const auto output = [&](const char* name, int64_t width, DType dtype, bool readable) {
      return d_.plan.add_buffer({.name = name,
                                 .dtype = dtype,
                                 .width = width,
                                 .rows = plan::RowSpace::output,
                                 .readable = readable});
    };
    KAPITSA_ASSIGN(const plan::Norm final_norm, norm("output_norm", s.hidden));
    plan::Head head = {.x = x_, .norm = final_norm, .weight = table};
    head.logits = output("logits", s.vocab, DType::f32, true);
    if (s.top_logits > 0) {
      head.top_ids = output("top_ids", s.top_logits, DType::i32, true);
      head.top_values = output("top_values", s.top_logits, DType::f32, true);
      head.log_sum_exp = output("log_sum_exp", 1, DType::f32, true);
    }
    d_.plan.add(head, "head");
    d_.plan.logits = head.logits;
    d_.plan.n_vocab = static_cast<int32_t>(s.vocab);
    return {};
  }

  Decoder& d_;
  const WeightSource& source_;
  plan::BufferId x_, q_, k_, v_, attended_;
};

}  // namespace

std::vector<std::byte> random_blocks(DType dtype, int64_t n, float deviation,
                                     std::mt19937& random) {
  // A sum of four uniform numbers is normal enough, and the same on every standard library.
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    float sum = 0.0F;
    for (int i = 0; i < 4; ++i)
      sum += static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F;
    value = deviation * 1.7320508F * sum;
  }
  auto blocks = weights::quantise(dtype, values);
  KAPITSA_CHECK(blocks.ok(), "the test asks for a type that cannot be encoded");
  return std::move(*blocks);
}

Decoder random_decoder(const DecoderShape& shape, DType matrices, DType embedding, uint32_t seed) {
  Decoder decoder;
  decoder.shape = shape;
  std::mt19937 random(seed);
  const WeightSource source = [&](const std::string& name, int64_t out,
                                  int64_t in) -> Result<plan::Weight> {
    plan::Weight weight = {.name = name, .out = out, .in = in};
    if (out == 1) {
      std::vector<float> ones(static_cast<size_t>(in));
      for (float& value : ones)
        value = 0.5F + static_cast<float>(random() >> 8) * 0x1p-24F;
      decoder.data.push_back(*weights::quantise(DType::f32, ones));
    } else {
      weight.dtype = name.starts_with("token_embd") ? embedding : matrices;
      const float deviation = 1.0F / std::sqrt(static_cast<float>(in));
      decoder.data.push_back(random_blocks(weight.dtype, out * in, deviation, random));
    }
    weight.data = decoder.data.back();
    return weight;
  };
  const Status built = Builder(decoder, source).build();
  KAPITSA_CHECK(built.ok(), "random weights cannot be missing");
  return decoder;
}

Result<Decoder> read_decoder(const weights::Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const std::string arch, checkpoint.string("general.architecture"));
  const auto key = [&](const char* name) { return arch + "." + name; };
  Decoder decoder;
  DecoderShape& s = decoder.shape;
  KAPITSA_ASSIGN(s.n_layers, checkpoint.integer(key("block_count")));
  KAPITSA_ASSIGN(s.hidden, checkpoint.integer(key("embedding_length")));
  KAPITSA_ASSIGN(const int64_t n_heads, checkpoint.integer(key("attention.head_count")));
  KAPITSA_ASSIGN(const int64_t n_kv_heads, checkpoint.integer(key("attention.head_count_kv")));
  KAPITSA_ASSIGN(const int64_t head_dim,
                 checkpoint.integer_or(key("attention.key_length"), s.hidden / n_heads));
  KAPITSA_ASSIGN(s.ff, checkpoint.integer(key("feed_forward_length")));
  KAPITSA_ASSIGN(const double eps, checkpoint.number(key("attention.layer_norm_rms_epsilon")));
  KAPITSA_ASSIGN(s.rope_theta, checkpoint.number_or(key("rope.freq_base"), 10000.0));
  s.n_heads = static_cast<int32_t>(n_heads);
  s.n_kv_heads = static_cast<int32_t>(n_kv_heads);
  s.head_dim = static_cast<int32_t>(head_dim);
  s.eps = static_cast<float>(eps);
  s.qk_norm = arch == "qwen3";
  s.rope_pairs = arch == "llama" ? plan::RopePairs::adjacent : plan::RopePairs::half;
  const weights::Tensor* table = checkpoint.find("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2)
    return Error{ErrorCode::corrupt_file, "no token_embd.weight"};
  s.vocab = table->shape[0];
  const WeightSource source = [&](const std::string& name, int64_t out,
                                  int64_t in) -> Result<plan::Weight> {
    const weights::Tensor* tensor = checkpoint.find(name);
    if (tensor == nullptr || tensor->n_elements() != out * in)
      return Error{ErrorCode::corrupt_file, "tensor " + name + " is missing or misshapen"};
    return plan::Weight{
        .name = name, .dtype = tensor->dtype, .out = out, .in = in, .data = tensor->data};
  };
  KAPITSA_TRY(Builder(decoder, source).build());
  return decoder;
}

}  // namespace kapitsa::test
