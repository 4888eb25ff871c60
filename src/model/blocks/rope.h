// Rotary frequencies of every published scaling, computed once at load (plan::Rope holds the
// result). Sources: RoPE, Su et al. arXiv 2104.09864; YaRN, Peng et al. arXiv 2309.00071; the
// llama3 rule, Llama 3 report arXiv 2407.21783 and its released config.
#pragma once

#include "model/config.h"
#include "plan/types.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kapitsa::model {

struct RopeConfig {
  int32_t dims = 0;  // rotary elements of a head, even
  // "proportional" (Gemma 4): all of the head is rotary, but pairs beyond these stay as they are.
  std::optional<int32_t> n_turning;
  double theta = 1e4;   // base of the geometric series
  double linear = 1.0;  // positions are divided by it
  struct Yarn {
    double factor = 1.0;            // context extension
    double original_context = 0.0;  // tokens
    double beta_fast = 32.0;        // more rotations than this over the original context: unchanged
    double beta_slow = 1.0;         // fewer than this: interpolated
    std::optional<double> attention_factor;  // default 0.1 ln(factor) + 1
  };
  std::optional<Yarn> yarn;
  struct Llama3 {
    double factor = 1.0;
    double low_frequency = 1.0;     // fewer rotations over the original context: divided by factor
    double high_frequency = 4.0;    // more: unchanged; between: blended
    double original_context = 0.0;  // tokens
  };
  std::optional<Llama3> llama3;
  std::vector<float> divisors;  // (dims / 2): GGUF stores the llama3 rule so; empty: none
};

plan::Rope make_rope(const RopeConfig& config, plan::RopePairs pairs);

// Layers whose rope is meant, in models where layers with a sliding window have their own.
enum class RopeLayers : uint8_t { all, full, sliding };

// The rope keys of either format. GGUF: rope.{dimension_count, freq_base, scaling.*}; the optional
// tensor rope_freqs.weight is left to the caller. config.json: rope_theta, rope_scaling, or
// rope_parameters, and partial_rotary_factor in either place; `share` of the head rotates where it
// is not given. An unknown scaling is refused through the reader.
RopeConfig read_rope(ConfigReader& reader, int32_t head_dim, double share = 1.0,
                     RopeLayers layers = RopeLayers::all);

}  // namespace kapitsa::model
