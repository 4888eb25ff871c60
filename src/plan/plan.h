// A Plan: what a model is, once read: a flat list of steps over named buffers, weights and states.
// A model file records it at load; a backend runs it for every pass. It holds no memory of its own
// and is plain data, so that it can be printed, lowered, split and interpreted.
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "plan/pass.h"

#include <functional>
#include <string>
#include <vector>

namespace kapitsa::plan {

struct Step {
  Op op;
  std::string label;  // "3.attention": for traces and errors
};

// One entry point: the trunk, an MTP head, a diffusion denoiser. They share buffers and weights.
struct Routine {
  std::string name;
  std::vector<Step> steps;
};

class Plan {
public:
  // Each name is unique within its kind. Sizes must be positive (checked).
  BufferId add_buffer(Buffer buffer);
  WeightId add_weight(Weight weight);
  StateId add_state(State state);

  // Steps are added to the routine begun last; the first one begun is routine 0.
  void begin_routine(std::string name);
  void add(Op op, std::string label);
  // Lets the causal attention of all steps so far see whole blocks of positions (Mask::block).
  void attend_to_blocks(int32_t block);

  const Buffer& buffer(BufferId id) const;
  const Weight& weight(WeightId id) const;
  const State& state(StateId id) const;
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Routine>& routines() const { return routines_; }

  // The buffer of this name, made on first use: temporaries that many steps share in turn.
  BufferId scratch(const std::string& name, int64_t width, DType dtype = DType::f32,
                   RowSpace rows = RowSpace::pass);
  // A dense row as one head, or cut into `count` heads.
  Heads heads(BufferId id, int32_t count = 1) const;

  // What the engine needs to know beside the steps.
  BufferId logits;        // (outputs, vocab) of routine 0
  BufferId features;      // captured layer outputs for a drafter; absent unless asked for
  int32_t n_history = 0;  // preceding tokens a row needs (n-gram embeddings)
  int32_t n_vocab = 0;    // width of logits

private:
  friend Result<Plan> lower(const Plan& plan,
                            const std::function<bool(const Plan&, const Op&)>& supports);

  std::vector<Buffer> buffers_;
  std::vector<Weight> weights_;
  std::vector<State> states_;
  std::vector<Routine> routines_;
};

// A copy of the plan in which every fused op that `supports` refuses is replaced by its expansion,
// again and again, until everything is supported. Fails, naming op and step, when a primitive is
// not.
Result<Plan> lower(const Plan& plan, const std::function<bool(const Plan&, const Op&)>& supports);

// Checks every step's operand shapes through its full expansion; the error names the step. A model
// file's own test: a Plan from a valid checkpoint never fails it.
Status validate(const Plan& plan);

}  // namespace kapitsa::plan
