// The nouns of a Plan: buffers, weights, states, head views, rope. Handles are indexes into the
// Plan that made them. No arithmetic and no memory here: a backend decides where things live.
#pragma once

#include "base/dtype.h"
#include "base/group_quant.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kapitsa::plan {

// A typed index; a default-made one means "absent" (an optional operand).
template <typename Tag>
struct Id {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
  friend bool operator==(Id, Id) = default;
};
using BufferId = Id<struct BufferTag>;
using WeightId = Id<struct WeightTag>;
using StateId = Id<struct StateTag>;

// Which rows a buffer has: one per row of the pass, or one per row whose logits are wanted.
enum class RowSpace : uint8_t { pass, output };

// An activation: (rows, width), row r contiguous. f32 or i32. Contents last for one pass only,
// except that `readable` ones keep them until the next pass, for the engine to read, and `input`
// ones are filled by the engine before a pass (zeros until then).
struct Buffer {
  std::string name;
  DType dtype = DType::f32;
  int64_t width = 0;  // elements per row
  RowSpace rows = RowSpace::pass;
  bool readable = false;
  bool input = false;
};

// A constant of the model: (experts, out, in), rows of `in` elements in blocks of its dtype, no
// padding. Vectors are (1, 1, n). The bytes are host memory that outlives the Program; a backend
// may re-encode them exactly for its kernels, never requantise them (invariant 5).
struct Weight {
  std::string name;
  DType dtype = DType::f32;
  int64_t experts = 1;
  int64_t out = 1;
  int64_t in = 0;
  std::span<const std::byte> data;  // all experts, one after another
  // Instead of data: the (out, in) matrix of each expert, where a file keeps them apart.
  std::vector<std::span<const std::byte>> expert_data = {};
  // Multiplies the decoded values: empty is 1, else one for all or one for each expert (NVFP4).
  std::vector<float> scale = {};

  // DType::grouped only: data holds the codes; (experts, out, in / group) scales and, for affine,
  // biases of scale_dtype.
  GroupQuant group = {};
  std::span<const std::byte> scales = {};
  std::span<const std::byte> biases = {};
  // Instead of scales: those of each expert, where a file keeps them apart. Not with biases.
  std::vector<std::span<const std::byte>> expert_scales = {};
  DType scale_dtype = DType::bf16;
};

// Bytes of one row of codes.
int64_t row_bytes(const Weight& weight);
// The bytes of one expert's matrix, wherever they lie.
std::span<const std::byte> matrix_bytes(const Weight& weight, int64_t expert);
// DType::grouped: the scales and biases of one expert.
std::span<const std::byte> matrix_scales(const Weight& weight, int64_t expert);
std::span<const std::byte> matrix_biases(const Weight& weight, int64_t expert);

// What lives across passes.
enum class StateKind : uint8_t {
  kv_cache,   // (slots, width): one entry per token slot, addressed by page tables
  recurrent,  // (state slots, width) f32: one entry per sequence, changed only by prefill and
              // replay
  tape,  // (tape rows, width) f32: what a decode row would change, for the replay (invariant 3)
};
struct State {
  std::string name;
  StateKind kind = StateKind::kv_cache;
  DType dtype = DType::f32;
  int64_t width = 0;
};

// A recurrent state and the tape of its decode rows.
struct Recurrent {
  StateId state;
  StateId tape;
};

// `count` groups of `dim` elements inside each row of a buffer: head h of row r starts at element
// r * width + offset + h * stride. A whole dense row is {buffer, 1, width, width, 0}.
struct Heads {
  BufferId buffer;
  int32_t count = 1;
  int32_t dim = 0;
  int32_t stride = 0;
  int32_t offset = 0;
};

// Rotary embedding of the first 2 * inv_freq.size() elements of a head; the rest passes through.
// Every published scaling (linear, llama3, YaRN, proportional) is data: the model file computes
// inv_freq and magnitude at load. Angle of pair i at position p: p * inv_freq[i].
enum class RopePairs : uint8_t {
  half,      // pair i is (i, i + n/2) of the n rotary elements: HF "rotate_half", ggml NEOX
  adjacent,  // pair i is (2i, 2i + 1): GGUF llama files permute q and k rows for it
};
struct Rope {
  std::vector<float> inv_freq;  // (rotary dims / 2), radians per position; empty: no rope
  float magnitude = 1.0F;       // multiplies cos and sin (YaRN attention factor)
  RopePairs pairs = RopePairs::half;
};

// Elementwise functions, all in f32.
enum class Activation : uint8_t {
  identity,
  silu,          // x * sigmoid(x)
  gelu_tanh,     // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  relu_squared,  // max(x, 0)^2
  sigmoid,
  softplus,  // log(1 + exp(x))
  tanh,
  signed_sqrt,  // sign(x) sqrt(max(|x|, 1e-6)): the n-gram gate of qwen4_exp
};

// RMS(x; eps) = x / sqrt(mean(x^2) + eps) over each head, then times the weight where there is one.
// One-plus norms are folded into the weight at load. `present` false: no normalisation at all.
struct Norm {
  bool present = false;
  WeightId weight;  // absent: weightless. (dim) shared by all heads, or (count * dim)
  float eps = 0.0F;
};

// One projection of an input: out = W in + bias.
struct Projection {
  WeightId weight;  // (out, in)
  WeightId bias;    // optional (out)
  BufferId out;     // (rows, out)
};

}  // namespace kapitsa::plan
