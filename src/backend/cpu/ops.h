// The steps that this backend runs: one run_op for each op, called by every thread of the pool. An
// op without a run_op is expanded when the Program is loaded (plan::lower).
//
// Between two steps all threads meet, unless both split the same rows in the same way and touch
// only their own (Split): so a chain of small row-wise steps costs one meeting.
#pragma once

#include "backend/cpu/context.h"

#include <span>

namespace kapitsa::backend::cpu {

enum class Split : uint8_t {
  pass_rows,    // each thread does its partition() of the pass's rows and reads no others
  output_rows,  // the same for the rows whose logits are wanted
  free,         // reads what other threads wrote
};

// ops_rows.cpp: row by row.
void run_op(const Context& c, const Worker& w, const plan::EmbedRows& op);
void run_op(const Context& c, const Worker& w, const plan::RmsNorm& op);
void run_op(const Context& c, const Worker& w, const plan::L2Norm& op);
void run_op(const Context& c, const Worker& w, const plan::Add& op);
void run_op(const Context& c, const Worker& w, const plan::Mul& op);
void run_op(const Context& c, const Worker& w, const plan::Affine& op);
void run_op(const Context& c, const Worker& w, const plan::Activate& op);
void run_op(const Context& c, const Worker& w, const plan::ScaleColumns& op);
void run_op(const Context& c, const Worker& w, const plan::SoftplusBias& op);
void run_op(const Context& c, const Worker& w, const plan::Softcap& op);
void run_op(const Context& c, const Worker& w, const plan::Copy& op);
void run_op(const Context& c, const Worker& w, const plan::Repeat& op);
void run_op(const Context& c, const Worker& w, const plan::SumGroups& op);
void run_op(const Context& c, const Worker& w, const plan::GroupDot& op);
void run_op(const Context& c, const Worker& w, const plan::Softmax& op);
void run_op(const Context& c, const Worker& w, const plan::ApplyRope& op);
// ops_attention.cpp
void run_op(const Context& c, const Worker& w, const plan::CacheAppend& op);
void run_op(const Context& c, const Worker& w, const plan::AttentionPrepare& op);
void run_op(const Context& c, const Worker& w, const plan::Attend& op);
void run_op(const Context& c, const Worker& w, const plan::Attention& op);
// ops_select.cpp
void run_op(const Context& c, const Worker& w, const plan::SelectBlocks& op);
// ops_linear.cpp
void run_op(const Context& c, const Worker& w, const plan::Linear& op);
void run_op(const Context& c, const Worker& w, const plan::NormLinear& op);
void run_op(const Context& c, const Worker& w, const plan::LinearAdd& op);
void run_op(const Context& c, const Worker& w, const plan::Mlp& op);
void run_op(const Context& c, const Worker& w, const plan::Head& op);
// ops_experts.cpp
void run_op(const Context& c, const Worker& w, const plan::SelectExperts& op);
void run_op(const Context& c, const Worker& w, const plan::ExpertLinear& op);
void run_op(const Context& c, const Worker& w, const plan::CombineExperts& op);
// ops_recurrent.cpp
void run_op(const Context& c, const Worker& w, const plan::CausalConv& op);
void run_op(const Context& c, const Worker& w, const plan::DeltaRule& op);
void run_op(const Context& c, const Worker& w, const plan::SsmScan& op);
// ops_special.cpp
void run_op(const Context& c, const Worker& w, const plan::NgramRows& op);
void run_op(const Context& c, const Worker& w, const plan::SoftEmbed& op);
// ops_output.cpp
void run_op(const Context& c, const Worker& w, const plan::GatherOutputs& op);
void run_op(const Context& c, const Worker& w, const plan::TopLogits& op);

template <typename Op>
concept Runnable = requires(const Context& c, const Worker& w, const Op& op) { run_op(c, w, op); };

// Commits tape rows to a state slot, outside a pass; each thread does its own part.
void replay_op(const Context& c, const Worker& w, const plan::CausalConv& op, int32_t state_slot,
               std::span<const int32_t> tape_rows);
void replay_op(const Context& c, const Worker& w, const plan::DeltaRule& op, int32_t state_slot,
               std::span<const int32_t> tape_rows);
void replay_op(const Context& c, const Worker& w, const plan::SsmScan& op, int32_t state_slot,
               std::span<const int32_t> tape_rows);

template <typename Op>
concept Replayable = requires(const Context& c, const Worker& w, const Op& op) {
  replay_op(c, w, op, 0, std::span<const int32_t>());
};

// Elements of an entry of the recurrent state, which is padded, and of the tape, in which each head
// has all that it needs.
int64_t state_width(const plan::DeltaRule& op);
int64_t state_width(const plan::SsmScan& op);
int64_t tape_width(const plan::DeltaRule& op);
int64_t tape_width(const plan::SsmScan& op);

// A BlockRope: its size, its values, and from them the angles (pairs, 2) at one block.
int64_t block_rope_floats(const plan::SelectBlocks& op, const ProgramLimits& limits);
void fill_block_rope(const plan::SelectBlocks& op, const ProgramLimits& limits, float* values);
void block_angles(const BlockRope& rope, int32_t block, float* angles);

// Computes the angles of all ropes of the plan for the pass's rows, before the first step.
void fill_ropes(const Context& c, const Worker& w);
// y = RMS norm of x, times the weight where there is one; may be in place.
void normalise(const Context& c, const float* x, int64_t n, float eps, const float* weight,
               float* y);
// Rotates one head; angles (pairs, 2) are a row of a RopeTable.
void rotate(float* x, const float* angles, int64_t n_pairs, plan::RopePairs pairs);

// Most projections of one NormLinear that it takes.
inline constexpr size_t kMaxProjections = 16;

// The kernel's name of a function; not for identity.
Function kernel_function(plan::Activation activation);

// Scratch bytes that one thread needs for a step, and that all threads share; ops without an
// overload need none.
template <typename Op>
int64_t scratch_bytes(const plan::Plan&, const ProgramLimits&, const Op&) {
  return 0;
}
template <typename Op>
int64_t shared_bytes(const plan::Plan&, const ProgramLimits&, const Op&) {
  return 0;
}
int64_t top_logits_bytes(int64_t n_rows, int64_t vocab);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Attend& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::Attention& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Linear& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::NormLinear& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::LinearAdd& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Mlp& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Head& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::ExpertLinear& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::SelectExperts& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::CausalConv& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::DeltaRule& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::SsmScan& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::SelectBlocks& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::SoftEmbed& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::SoftEmbed& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Attend& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::Attention& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Linear& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::NormLinear& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::LinearAdd& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Mlp& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Head& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::ExpertLinear& op);
int64_t shared_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                     const plan::TopLogits& op);

}  // namespace kapitsa::backend::cpu
