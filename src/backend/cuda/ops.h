// The launchers: one run_op for each op that this backend has, in the .cu file of its family. They
// only put kernels into the context's stream; what a kernel does is the formula beside the op in
// plan/primitives.h. replay_op commits tape rows to recurrent states (plan/pass.h).
#pragma once

#include "backend/cuda/context.h"
#include "backend/cuda/skinny.h"

namespace kapitsa::backend::cuda {

// Tape rows to commit, by state slot; device pointers with n_slots entries, `rows` with as many as
// first and count say.
struct ReplayView {
  const int32_t* state_slot;
  const int32_t* first;
  const int32_t* count;
  const int32_t* rows;
  int32_t n_slots;
};

void run_op(const Context& context, const plan::EmbedRows& op);
void run_op(const Context& context, const plan::RmsNorm& op);
void run_op(const Context& context, const plan::L2Norm& op);
void run_op(const Context& context, const plan::Linear& op);
void run_op(const Context& context, const plan::Add& op);
void run_op(const Context& context, const plan::Mul& op);
void run_op(const Context& context, const plan::Affine& op);
void run_op(const Context& context, const plan::Activate& op);
void run_op(const Context& context, const plan::ScaleColumns& op);
void run_op(const Context& context, const plan::SoftplusBias& op);
void run_op(const Context& context, const plan::Softcap& op);
void run_op(const Context& context, const plan::Copy& op);
void run_op(const Context& context, const plan::Repeat& op);
void run_op(const Context& context, const plan::SumGroups& op);
void run_op(const Context& context, const plan::GroupDot& op);
void run_op(const Context& context, const plan::Softmax& op);
void run_op(const Context& context, const plan::ApplyRope& op);
void run_op(const Context& context, const plan::CacheAppend& op);
void run_op(const Context& context, const plan::Attend& op);
void run_op(const Context& context, const plan::SelectBlocks& op);
void run_op(const Context& context, const plan::CausalConv& op);
void run_op(const Context& context, const plan::DeltaRule& op);
void run_op(const Context& context, const plan::SsmScan& op);
void run_op(const Context& context, const plan::SelectExperts& op);
void run_op(const Context& context, const plan::ExpertLinear& op);
void run_op(const Context& context, const plan::CombineExperts& op);
void run_op(const Context& context, const plan::NgramRows& op);
void run_op(const Context& context, const plan::SoftEmbed& op);
void run_op(const Context& context, const plan::GatherOutputs& op);
void run_op(const Context& context, const plan::TopLogits& op);

// Fused ops: ComputeMode::fast only, with all their matrices in tiles (fits_tiles).
void run_op(const Context& context, const plan::NormLinear& op);
void run_op(const Context& context, const plan::LinearAdd& op);
void run_op(const Context& context, const plan::Mlp& op);
void run_op(const Context& context, const plan::Route& op);
void run_op(const Context& context, const plan::ExpertsUp& op);
void run_op(const Context& context, const plan::ExpertsDown& op);
// A primitive on a matrix in tiles.
void run_tiles(const Context& context, const plan::Linear& op);

bool fits_tiles(const plan::Plan& plan, const plan::Linear& op);
bool fits_tiles(const plan::Plan& plan, const plan::NormLinear& op);
bool fits_tiles(const plan::Plan& plan, const plan::LinearAdd& op);
bool fits_tiles(const plan::Plan& plan, const plan::Mlp& op);
bool fits_tiles(const plan::Plan& plan, const plan::Route& op);
bool fits_tiles(const plan::Plan& plan, const plan::ExpertsUp& op);
bool fits_tiles(const plan::Plan& plan, const plan::ExpertsDown& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::Linear& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::NormLinear& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::LinearAdd& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::Mlp& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::Route& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::ExpertsUp& op);
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::ExpertsDown& op);
// Bytes of Context::experts.
int64_t expert_list_bytes(const ProgramLimits& limits, int32_t n_experts);

void run_op(const Context& context, const plan::AttentionPrepare& op);
void run_op(const Context& context, const plan::Attention& op);
void run_op(const Context& context, const plan::DeltaMix& op);
void run_op(const Context& context, const plan::MambaMix& op);
void replay_op(const Context& context, const plan::DeltaMix& op, const ReplayView& replay);
void replay_op(const Context& context, const plan::MambaMix& op, const ReplayView& replay);
void replay_op(const Context& context, const plan::CausalConv& op, const ReplayView& replay);
void replay_op(const Context& context, const plan::DeltaRule& op, const ReplayView& replay);
void replay_op(const Context& context, const plan::SsmScan& op, const ReplayView& replay);

template <typename Op>
concept Runnable = requires(const Context& context, const Op& op) { run_op(context, op); };
// Ops that multiply with matrices in tiles where they can.
template <typename Op>
concept Tiled = requires(const plan::Plan& plan, const Op& op) { fits_tiles(plan, op); };
template <typename Op>
concept Replayable = requires(const Context& context, const Op& op, const ReplayView& replay) {
  replay_op(context, op, replay);
};

// Bytes of Context::scratch that an op needs; none unless there is an overload for it.
template <typename Op>
int64_t scratch_bytes(const plan::Plan&, const ProgramLimits&, const Op&) {
  return 0;
}
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::SelectBlocks& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Mlp& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Route& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::DeltaMix& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::Attention& op);
int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits,
                      const plan::MambaMix& op);

// Whether the operands of the op are what its kernels take; true unless there is an overload.
template <typename Op>
bool has_shape(const plan::Plan&, const Op&) {
  return true;
}
bool has_shape(const plan::Plan& plan, const plan::Attend& op);
bool has_shape(const plan::Plan& plan, const plan::SelectBlocks& op);
bool has_shape(const plan::Plan& plan, const plan::DeltaRule& op);
bool has_shape(const plan::Plan& plan, const plan::DeltaMix& op);
bool has_shape(const plan::Plan& plan, const plan::Attention& op);
bool has_shape(const plan::Plan& plan, const plan::AttentionPrepare& op);
bool has_shape(const plan::Plan& plan, const plan::MambaMix& op);
bool has_shape(const plan::Plan& plan, const plan::SsmScan& op);
bool has_shape(const plan::Plan& plan, const plan::NgramRows& op);
bool has_shape(const plan::Plan& plan, const plan::TopLogits& op);
bool has_shape(const plan::Plan& plan, const plan::SelectExperts& op);

}  // namespace kapitsa::backend::cuda
