// The primitives: the closed list of operations that a backend must have to run every model. Each
// fused op of ops.h has a default expansion into these (expand.h). Unless said otherwise: operands
// are f32, sums are over the row's own elements only (invariant 1), `out` may be the same buffer as
// an elementwise input and must not overlap any other operand.
#pragma once

#include "plan/types.h"

namespace kapitsa::plan {

// out[r] = table[token[r]], dequantised. table (vocab, n), out (rows, n).
struct EmbedRows {
  WeightId table;
  BufferId out;
};

// out = Norm(in) per head. in and out have equal count and dim. In place is allowed.
struct RmsNorm {
  Heads in;
  Norm norm;
  Heads out;
};

// out = scale * x / sqrt(sum(x^2) + eps) per head, in place. Gated DeltaNet q and k.
struct L2Norm {
  Heads x;
  float eps = 0.0F;
  float scale = 1.0F;
};

// out[r] = W in[r] + bias. W (out, in).
struct Linear {
  BufferId in;
  Projection projection;
};

// out = a + b, equal widths.
struct Add {
  BufferId a, b, out;
};

// out = a * b. b is as wide as a, or narrower by a whole factor f: then b[i] scales the f
// consecutive elements a[i * f .. i * f + f - 1] (a gate per head, an injection per residual
// stream).
struct Mul {
  BufferId a, b, out;
};

// out = scale * in + shift.
struct Affine {
  BufferId in, out;
  float scale = 1.0F;
  float shift = 0.0F;
};

// out = f(in).
struct Activate {
  BufferId in, out;
  Activation function = Activation::identity;
};

// out = weight * in, columnwise; weight (width).
struct ScaleColumns {
  BufferId in, out;
  WeightId weight;
};

// out = clamp(softplus(in + bias), low, high), columnwise; bias (width). Time steps of recurrences.
struct SoftplusBias {
  BufferId in, out;
  WeightId bias;
  float low = 0.0F;
  float high = 3.4e38F;
};

// out = cap * tanh(in / cap). Logit soft-capping.
struct Softcap {
  BufferId in, out;
  float cap = 1.0F;
};

// Copies heads: equal count and dim, any strides. Splits, joins and captures rows.
struct Copy {
  Heads in, out;
};

// out[r] = in[r] repeated `copies` times along the row. out width = copies * in width.
struct Repeat {
  BufferId in, out;
  int32_t copies = 1;
};

// out = scale * sum over the `groups` equal parts of each row, in part order. Mean of residual
// streams.
struct SumGroups {
  BufferId in, out;
  int32_t groups = 1;
  float scale = 1.0F;
};

// out[r, g] = scale * dot(a[r, group g], b[r, group g]).
struct GroupDot {
  BufferId a, b, out;
  int32_t groups = 1;
  float scale = 1.0F;
};

// out = softmax(in) over the whole row.
struct Softmax {
  BufferId in, out;
};

// Rotates each head in place by its row's position.
struct ApplyRope {
  Heads x;
  Rope rope;
};

// Writes the row's heads, densely, into its KV slot: cache width = count * dim.
struct CacheAppend {
  Heads in;
  StateId cache;
};

// Which keys a row may see, besides its own sequence and path.
enum class Mask : uint8_t {
  causal,         // positions <= its own
  block,          // positions up to the end of its own block of `block` (block diffusion)
  bidirectional,  // all cached positions and all rows of its sequence in the pass (diffusion
                  // canvas); a window then ends at the first of these rows and holds them all
};

// Softmax attention over the paged cache. Query head h reads key head h / (q.count / n_kv_heads).
// score = scale * q.k, soft-capped where softcap > 0; sink (q.count) joins the softmax as a score
// without a value. Keys sit at their logical position: committed ones through the page table, rows
// of this pass through the ancestor chain (pass.h). Partial sums are cut at multiples of
// kAttentionSplit positions from 0 and merged in order, whatever the pass holds.
struct Attend {
  Heads q;
  StateId k_cache;  // (slots, n_kv_heads * q.dim)
  StateId v_cache;  // (slots, n_kv_heads * out.dim)
  int32_t n_kv_heads = 1;
  float scale = 1.0F;
  float softcap = 0.0F;
  int32_t window = 0;  // > 0: only the last `window` positions, its own included
  Mask mask = Mask::causal;
  int32_t block = 0;
  WeightId sinks;
  BufferId
      selection;  // optional i32 (rows, n): block indexes to attend to, -1 = none; see SelectBlocks
  int32_t selection_block = 0;  // tokens in a selected block
  Heads out;
};
inline constexpr int32_t kAttentionSplit = 256;  // positions

// Scores complete blocks of `ratio` tokens and keeps the best `budget` (qwen4_exp indexer).
// Key of block j: rope(Norm(mean of its raw keys), position of its first token).
// score = sum over query heads of relu(q.key) / sqrt(dim); ties to the lower block.
// out i32 (rows, budget + 1): chosen blocks in rising order, then the incomplete last one, then -1.
struct SelectBlocks {
  Heads q;            // normed and rotated
  StateId key_cache;  // raw keys (slots, dim)
  Norm key_norm;
  Rope rope;
  int32_t ratio = 1;
  int32_t budget = 1;
  BufferId out;
};

// Depthwise causal convolution over the sequence, then an activation.
// out[t, c] = f(bias[c] + sum_j weight[c, j] * in[t - (taps - 1 - j) * dilation, c]); zeros before
// the start. Decode rows follow their ancestors. State: the last (taps - 1) * dilation inputs.
struct CausalConv {
  BufferId in, out;
  WeightId weight;  // (width, taps)
  WeightId bias;    // optional (width)
  int32_t taps = 1;
  int32_t dilation = 1;
  Activation activation = Activation::identity;
  Recurrent memory;  // state (taps - 1) * dilation * width, tape width
};

// Which key head serves value head h when there are more value heads.
enum class HeadMap : uint8_t {
  grouped,  // h / (n_v / n_k): HF order
  tiled,    // h mod n_k: GGUF order
};

// Gated delta rule (Yang et al., arXiv 2412.06464), per value head, state S (dv, dk) in f32:
//   S <- exp(g) S;  delta = beta (v - S k);  S <- S + delta k^T;  out = S q.
// Decode: stepwise from the parent's state, tape row = [k | delta | g]. Prefill: chunks on the
// grid.
struct DeltaRule {
  Heads q, k;      // (n_k, dk), normalised, q scaled
  Heads v;         // (n_v, dv)
  BufferId decay;  // g (rows, n_v), <= 0
  BufferId beta;   // (rows, n_v)
  HeadMap head_map = HeadMap::grouped;
  Recurrent memory;  // state n_v * dv * dk, tape n_k * dk + n_v * (dv + 1)
  Heads out;         // (n_v, dv)
};

// Mamba-2 (Dao and Gu, arXiv 2405.21060), per head, state S (p, n) in f32, group of head h is
// h / (heads / groups):  S <- exp(dt A) S + (dt x) B^T;  out = S C + D x.
struct SsmScan {
  Heads x;           // (heads, p)
  BufferId dt;       // (rows, heads)
  Heads b, c;        // (groups, n)
  WeightId a, d;     // (heads); a < 0
  Recurrent memory;  // state heads * p * n, tape heads * (p + 1) + groups * n
  Heads out;         // (heads, p)
};

// How router logits become expert choices and weights.
enum class RouterScore : uint8_t {
  softmax,           // over all experts
  softmax_selected,  // over the chosen ones only
  sigmoid,
};
struct Router {
  RouterScore score = RouterScore::softmax;
  WeightId selection_bias;  // optional (experts): added for the choice only
  WeightId expert_scale;    // optional (experts): multiplies the final weight
  int32_t n_experts = 1;
  int32_t top_k = 1;
  int32_t n_groups = 1;  // > 1: keep top_groups groups by the sum of their two best scores
  int32_t top_groups = 1;
  bool renormalise = false;  // weights divided by (their sum + 1e-20)
  float scale = 1.0F;
};

// Chooses experts, best first, ties to the lower index; slot j is the j-th best. f32 throughout.
struct SelectExperts {
  BufferId logits;  // (rows, n_experts)
  Router router;
  BufferId ids;      // i32 (rows, top_k)
  BufferId weights;  // (rows, top_k)
};

// out[r, slot] = W[ids[r, slot]] in. in is (rows, n), shared by all slots, or (rows, top_k * n).
struct ExpertLinear {
  BufferId in;
  WeightId weight;  // (experts, out, in)
  BufferId ids;     // i32 (rows, top_k)
  BufferId out;     // (rows, top_k * out)
};

// out[r] = sum over slots, in slot order, of weights[r, slot] * in[r, slot].
struct CombineExperts {
  BufferId in;       // (rows, top_k * n)
  BufferId weights;  // (rows, top_k)
  BufferId out;      // (rows, n)
};

// Hashed n-gram table rows (qwen4_exp 5.4) of the row's token and its predecessors on its path
// (pass.h history). Integer arithmetic is exact in 64 bits.
struct NgramRows {
  WeightId table;                     // (parts, rows of a part, n): files may cut it, equally
  std::vector<int64_t> multipliers;   // one per token of the n-gram
  std::vector<int64_t> head_offsets;  // (heads)
  std::vector<int64_t> head_vocab;    // (heads)
  int32_t heads_per_ngram = 1;
  int32_t eos_token = -1;  // ends a segment: tokens before it count as eos
  BufferId out;            // (rows, heads * n)
};

// out[r] = scale * sum_v probabilities[r, v] * table[v]. Self-conditioning of diffusion models.
struct SoftEmbed {
  BufferId probabilities;  // (rows, vocab)
  WeightId table;          // (vocab, n)
  float scale = 1.0F;
  BufferId out;  // (rows, n)
};

// Keeps the rows whose logits are wanted: in has RowSpace::pass, out RowSpace::output.
struct GatherOutputs {
  BufferId in, out;
};

// The k largest logits of each row, best first, ties to the lower id, and log(sum(exp(logits))).
struct TopLogits {
  BufferId logits;       // (outputs, vocab)
  BufferId ids;          // i32 (outputs, k)
  BufferId values;       // (outputs, k)
  BufferId log_sum_exp;  // (outputs, 1)
};

}  // namespace kapitsa::plan
