// Rotary frequencies of every published scaling, computed once at load (plan::Rope holds the
// result). Sources: RoPE, Su et al. arXiv 2104.09864; YaRN, Peng et al. arXiv 2309.00071.
#pragma once

#include "base/result.h"
#include "plan/types.h"
#include "weights/checkpoint.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kapitsa::model {

struct RopeConfig {
  int32_t dims = 0;     // rotary elements of a head, even
  double theta = 1e4;   // base of the geometric series
  double linear = 1.0;  // positions are divided by it
  struct Yarn {
    double factor = 1.0;            // context extension
    double original_context = 0.0;  // tokens
    double beta_fast = 32.0;        // rotations over the original context above which: unchanged
    double beta_slow = 1.0;         // below which: interpolated
    std::optional<double> attention_factor;  // default 0.1 ln(factor) + 1
  };
  std::optional<Yarn> yarn;
  std::vector<float> divisors;  // (dims / 2): llama 3 stores one per frequency; empty: none
};

plan::Rope make_rope(const RopeConfig& config, plan::RopePairs pairs);

// The rope keys of a GGUF file: <arch>.rope.{dimension_count, freq_base, scaling.*}. head_dim is
// the default of dimension_count. The optional tensor rope_freqs.weight is left to the caller.
Result<RopeConfig> read_gguf_rope(const weights::Checkpoint& checkpoint, const std::string& arch,
                                  int32_t head_dim);

}  // namespace kapitsa::model
