// What an engine has to know of a model that writes its text block by block: the positions of a
// block are computed together, again and again, until they are settled, and only then enter the
// cache for good. A description; the passes themselves are routines of the Plan. Any architecture
// with attention can be such a model: its file says so (read_masked_diffusion).
#pragma once

#include "base/result.h"
#include "plan/plan.h"
#include "weights/checkpoint.h"

#include <cstdint>
#include <optional>
#include <variant>

namespace kapitsa::model {

// Masked block diffusion (LLaDA2, SDAR): blocks at multiples of their length, whose open positions
// hold the mask token. A step settles the positions whose token is likelier than the threshold.
struct MaskedDiffusion {
  int32_t mask_token = 0;
  bool shift_logits = false;  // the logits of position p are for p + 1
  double threshold = 0.9;     // probability above which a token settles
  int32_t steps = 0;          // in which a block is settled, whatever the probabilities
  // LLaDA2.1: settled tokens of the block change where another is likelier than this, and a full
  // block goes on until nothing changes, for edit_steps at most.
  std::optional<double> edit_threshold;
  int32_t edit_steps = 16;
};

// Uniform-noise diffusion (DiffusionGemma): a canvas after the committed tokens, which begins with
// random tokens. A step accepts the positions of least entropy and draws the others anew.
struct CanvasDiffusion {
  int32_t steps = 48;
  double temperature_low = 0.4;  // at the last step; rises with the steps that are left
  double temperature_high = 0.8;
  double entropy_bound = 0.1;        // nats: of the accepted ones together, without the last
  double confident_entropy = 0.005;  // nats: mean below which an unchanged canvas is settled
  int32_t stable_steps = 1;          // in which the likeliest tokens stay the same
  plan::BufferId conditions;  // (rows, vocab): probabilities of the step before, zero at the first
};

struct Diffusion {
  int32_t block = 0;  // positions
  std::variant<MaskedDiffusion, CanvasDiffusion> rule;
  int32_t denoise_routine = 0;  // gives the logits of a block
  int32_t store_routine = 0;    // fills the cache with tokens that do not change any more
};

// What the files of a family leave out; 0 where they say it.
struct MaskedDefaults {
  int32_t block = 0;
  int32_t mask_token = 0;
  double threshold = 0.9;
};

// Whether the file says that it is such a model, by the key diffusion.block_length.
bool has_masked_diffusion(const weights::Checkpoint& file);

// Keys, in GGUF and config.json alike: diffusion.{block_length, mask_token_id, shift_logits,
// threshold, steps, edit_threshold, edit_steps}. Released files have block_length or block_size and
// mask_token_id, GGUF has tokenizer.ggml.mask_token_id.
Result<Diffusion> read_masked_diffusion(const weights::Checkpoint& file,
                                        const MaskedDefaults& family = {});

// Lets every position of a block see the whole block. Layers with a state stay causal and would
// need another commit than the engine has, so a plan with such layers is refused.
Status make_block_bidirectional(plan::Plan& plan, int32_t block);

}  // namespace kapitsa::model
