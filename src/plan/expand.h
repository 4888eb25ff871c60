// The default expansion of each fused op into primitives: the definition that every kernel of the
// fused op is tested against. Scratch buffers are shared by name between the steps of a Plan.
#pragma once

#include "plan/plan.h"

#include <optional>
#include <vector>

namespace kapitsa::plan {

// The ops that stand for `op`, in order (they may be fused themselves); nullopt for a primitive.
// Adds the scratch buffers that they need to `plan`.
std::optional<std::vector<Op>> expand(const Op& op, Plan& plan);

// Whether expand() would give nullopt.
bool is_primitive(const Op& op);

// One overload for each fused op; expand() calls them.
std::vector<Op> expand_op(const Embed& op, Plan& plan);
std::vector<Op> expand_op(const NormLinear& op, Plan& plan);
std::vector<Op> expand_op(const LinearAdd& op, Plan& plan);
std::vector<Op> expand_op(const AttentionPrepare& op, Plan& plan);
std::vector<Op> expand_op(const Attention& op, Plan& plan);
std::vector<Op> expand_op(const DeltaMix& op, Plan& plan);
std::vector<Op> expand_op(const MambaMix& op, Plan& plan);
std::vector<Op> expand_op(const Route& op, Plan& plan);
std::vector<Op> expand_op(const ExpertsUp& op, Plan& plan);
std::vector<Op> expand_op(const ExpertsDown& op, Plan& plan);
std::vector<Op> expand_op(const Mlp& op, Plan& plan);
std::vector<Op> expand_op(const StreamMix& op, Plan& plan);
std::vector<Op> expand_op(const StreamAdd& op, Plan& plan);
std::vector<Op> expand_op(const IndexSelect& op, Plan& plan);
std::vector<Op> expand_op(const NgramEmbed& op, Plan& plan);
std::vector<Op> expand_op(const SelfCondition& op, Plan& plan);
std::vector<Op> expand_op(const MtpJoin& op, Plan& plan);
std::vector<Op> expand_op(const Head& op, Plan& plan);

// Shared pieces: appends the ops to `ops` and returns where the result is.
// n(x), or x itself without a norm. `count` heads share or split the weight as Norm says.
BufferId append_norm(std::vector<Op>& ops, Plan& plan, BufferId x, const Norm& norm,
                     const std::string& name, int32_t count = 1);
// residual.out = or += scale * Norm(y); y may be overwritten.
void append_residual(std::vector<Op>& ops, Plan& plan, BufferId y, const Residual& residual);
// f(gate) * up into a buffer `width` wide; gate absent: f(up). Both may be overwritten.
BufferId append_gated(std::vector<Op>& ops, BufferId gate, BufferId up, Activation activation);

}  // namespace kapitsa::plan
