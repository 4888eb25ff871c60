// The fused ops: what a model file calls, each as coarse as one good kernel. A model records them
// in the order of its paper; a backend either has a kernel for an op or runs its default expansion
// into primitives (the formula beside each op, made by expand.h). Rules of primitives.h hold here
// too. x is the residual stream (rows, hidden); n(x) is the op's own Norm of it, or x without one.
#pragma once

#include "plan/primitives.h"

#include <string>
#include <variant>
#include <vector>

namespace kapitsa::plan {

// out = copies of Norm(scale * table[token]).
struct Embed {
  WeightId table;  // (vocab, hidden)
  float scale = 1.0F;
  Norm norm;
  int32_t copies = 1;  // residual streams
  BufferId out;        // (rows, copies * hidden)
};

// Several projections of one normed input: out_i = W_i n(x) + bias_i.
struct NormLinear {
  BufferId x;
  Norm norm;
  std::vector<Projection> projections;
};

// How a sublayer's result y joins the residual: out = scale * Norm(y), or out += that.
struct Residual {
  BufferId out;
  bool accumulate = true;
  Norm post_norm;  // sandwich norm of y
  float scale = 1.0F;
};

// residual (+)= W in + bias.
struct LinearAdd {
  BufferId in;
  WeightId weight;  // (hidden, in)
  WeightId bias;    // optional
  Residual residual;
};

// Norm and rope on q and k, then k and v go to the cache. q is changed in place; k and v too (their
// buffers hold no defined value afterwards).
struct AttentionPrepare {
  Heads q, k, v;
  Norm q_norm, k_norm, v_norm;
  float q_scale = 1.0F;  // after norm, before rope
  Rope rope;
  StateId k_cache, v_cache;
};

// Attend, then out *= f(gate): gate has out's shape (elementwise) or one element per head.
struct Attention {
  Attend attend;
  Heads gate;  // absent buffer: no gate
  Activation gate_activation = Activation::sigmoid;
};

// Gated DeltaNet mixer between its projections (Yang et al., arXiv 2412.06464, as Qwen3-Next uses
// it):
//   [q|k|v] = silu(conv(qkv)); q, k = L2Norm(q, dk^-0.5), L2Norm(k); beta = sigmoid(b);
//   g = a_coefficient * softplus(a + dt_bias); out = Norm(delta_rule(q, k, v, g, beta)) * f(z).
struct DeltaMix {
  BufferId qkv;   // (rows, 2 * n_k * dk + n_v * dv)
  BufferId z;     // (rows, n_v * dv)
  BufferId a, b;  // (rows, n_v)
  int32_t n_k = 1, n_v = 1, dk = 1, dv = 1;
  WeightId conv;  // (channels, taps)
  int32_t taps = 4;
  WeightId a_coefficient;  // (n_v) = -exp(A_log)
  WeightId dt_bias;        // (n_v)
  Norm out_norm;           // weight (dv)
  Activation gate = Activation::silu;
  HeadMap head_map = HeadMap::grouped;
  float l2_eps = 1e-6F;
  Recurrent conv_memory, delta_memory;
  BufferId out;  // (rows, n_v * dv)
};

// Mamba-2 mixer between its projections (Dao and Gu, arXiv 2405.21060, as Nemotron-H uses it). in =
// [z | x | B | C | dt]:
//   [x|B|C] = silu(conv + bias); dt = clamp(softplus(dt + dt_bias)); y = ssm(x, dt, A, B, C, D);
//   out = Norm per group (y * silu(z)).
struct MambaMix {
  BufferId in;  // (rows, 2 * heads * p + 2 * groups * n + heads)
  int32_t heads = 1, p = 1, groups = 1, n = 1;
  WeightId conv, conv_bias;
  int32_t taps = 4;
  WeightId dt_bias, a, d;  // (heads); a = -exp(A_log)
  float dt_low = 0.0F, dt_high = 3.4e38F;
  Norm out_norm;  // weight (heads * p), one group of heads * p / groups each
  Recurrent conv_memory, ssm_memory;
  BufferId out;  // (rows, heads * p)
};

// Router of a mixture of experts: logits = W n(x); then SelectExperts.
struct Route {
  BufferId x;
  Norm norm;
  WeightId weight;  // (n_experts, hidden)
  WeightId bias;    // optional (n_experts)
  Router router;
  BufferId ids, weights;  // (rows, top_k)
};

// The always-active expert beside the routed ones.
struct SharedExpert {
  WeightId gate, up;   // (width, hidden); gate optional
  WeightId down;       // (hidden, width)
  WeightId mix;        // optional (1, hidden): output times sigmoid(mix . n(x))
  BufferId inner;      // (rows, width)
  BufferId mix_logit;  // (rows, 1), where mix is present
};

// inner[slot] = f(G_e n(x)) * (U_e n(x)), or f(U_e n(x)) without gate, for each chosen expert e.
struct ExpertsUp {
  BufferId x;
  Norm norm;
  WeightId gate, up;  // (experts, width, hidden); gate optional
  Activation activation = Activation::silu;
  BufferId ids;
  BufferId inner;       // (rows, top_k * width)
  SharedExpert shared;  // absent when shared.up is
};

// residual (+)= sum over slots of weight * D_e inner[slot], then the shared expert's part.
struct ExpertsDown {
  BufferId inner;  // (rows, top_k * width)
  WeightId down;   // (experts, hidden, width)
  BufferId ids, weights;
  SharedExpert shared;
  Residual residual;
};

// residual (+)= D (f(G n(x)) * (U n(x))), or D f(U n(x)) without gate.
struct Mlp {
  BufferId x;
  Norm norm;
  WeightId gate, up;  // (width, hidden); gate optional
  WeightId down;      // (hidden, width)
  Activation activation = Activation::silu;
  Residual residual;
};

// Residual streams of qwen4_exp (transformers, modeling_qwen4_exp). X (rows, streams * hidden), N =
// Norm per stream:
//   out = mean over streams of sigmoid(U silu(D N / streams)) * N;
//   inject = 2 sigmoid(I N / streams) (rows, streams), where I is present.
struct StreamMix {
  BufferId x;
  Norm norm;  // weight (streams * hidden)
  int32_t streams = 1;
  WeightId down, up, inject;
  BufferId out;  // (rows, hidden)
  BufferId inject_out;
};

// X_s += inject_s * y for each stream s.
struct StreamAdd {
  BufferId y;       // (rows, hidden)
  BufferId inject;  // (rows, streams)
  BufferId x;       // (rows, streams * hidden)
};

// Sparse-attention indexer of qwen4_exp (transformers, modeling_qwen4_exp): q = rope(Norm(q)), the
// raw key goes to its cache, then SelectBlocks.
struct IndexSelect {
  Heads q, k;  // q changed in place
  Norm q_norm;
  SelectBlocks select;  // select.q is this op's q
};

// N-gram embedding of qwen4_exp (transformers, modeling_qwen4_exp), added to every residual stream:
//   e = rows; K = Norm(W_k e); V = W_v e; gate_s = sigmoid(signed_sqrt(K_s . Norm(X)_s /
//   sqrt(hidden))); P_s = gate_s V; X += P + silu(conv(Norm(P))).
struct NgramEmbed {
  NgramRows rows;
  WeightId key, value;  // (streams * hidden, e), (hidden, e)
  Norm key_norm, query_norm, conv_norm;
  int32_t streams = 1;
  WeightId conv;  // (streams * hidden, taps)
  int32_t taps = 4, dilation = 3;
  Recurrent memory;
  BufferId x;  // (rows, streams * hidden)
};

// Decoder input of DiffusionGemma (its config and released encoder-decoder), x holds the scaled
// canvas embeddings:
//   s = Norm(soft embedding of the probabilities); x = Norm(x + D (gelu(G s) * (U s))).
struct SelfCondition {
  BufferId probabilities;  // (rows, vocab) after the step before, zeros at the first
  WeightId table;
  float embed_scale = 1.0F;
  Norm soft_norm, out_norm;
  WeightId gate, up, down;
  BufferId x;
};

// Input of a multi-token-prediction head (DeepSeek-V3, arXiv 2412.19437), for each residual stream
// s: out_s = W [Norm(embedding) ; Norm(hidden_s)].
struct MtpJoin {
  BufferId embedding;  // (rows, n)
  BufferId hidden;     // (rows, streams * n)
  Norm embedding_norm;
  Norm hidden_norm;  // weight (streams * n)
  WeightId weight;   // (n, 2 * n)
  BufferId out;      // (rows, streams * n)
  int32_t streams = 1;
};

// logits = cap(scale * W n(x)) of the rows that are wanted, and, where the buffers are present, the
// k best of each and the log of the sum of exponentials.
struct Head {
  BufferId x;
  Norm norm;
  WeightId weight;  // (vocab, hidden)
  float scale = 1.0F;
  float softcap = 0.0F;
  BufferId logits;  // (outputs, vocab)
  BufferId top_ids, top_values, log_sum_exp;
};

// Draws the next token of each output row on the device, by the chain and the noise of sample/:
// truncation and temperature from the pass's sampling rows, then arg-max of logits / T + Gumbel.
// Path-dependent chains (penalties, grammar) stay with the engine, which then reads the logits.
struct Sample {
  BufferId logits;
  BufferId token;  // i32 (outputs, 1)
};

using Op = std::variant<
    // fused
    Embed, NormLinear, LinearAdd, AttentionPrepare, Attention, DeltaMix, MambaMix, Route, ExpertsUp,
    ExpertsDown, Mlp, StreamMix, StreamAdd, IndexSelect, NgramEmbed, SelfCondition, MtpJoin, Head,
    // primitives
    EmbedRows, RmsNorm, L2Norm, Linear, Add, Mul, Affine, Activate, ScaleColumns, SoftplusBias,
    Softcap, Copy, Repeat, SumGroups, GroupDot, Softmax, ApplyRope, CacheAppend, Attend,
    SelectBlocks, CausalConv, DeltaRule, SsmScan, SelectExperts, ExpertLinear, CombineExperts,
    NgramRows, SoftEmbed, GatherOutputs, TopLogits, Sample>;

// The op's name as written above, for errors and traces.
const char* op_name(const Op& op);

}  // namespace kapitsa::plan
