// Fused ops over weights in tiles: norm and projections, projection and residual, the gated MLP,
// the head. Each is one or two launches of the kernel in skinny.cu.
#include "backend/cuda/experts.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/skinny.h"

#include <algorithm>

namespace kapitsa::backend::cuda {
namespace {

void set_norm(const Context& context, const plan::Norm& norm, SkinnyArgs& args) {
  args.has_norm = norm.present;
  args.norm_weight = norm.present ? context.vector(norm.weight) : nullptr;
  args.norm_eps = norm.eps;
}

void add_segment(const Context& context, plan::WeightId weight, plan::WeightId bias, float* out,
                 int64_t out_stride, SkinnyArgs& args) {
  const TileView& tiles = context.tile(weight);
  Segment& segment = args.segments[args.n_segments++];
  segment = {tiles, context.vector(bias), out, out_stride, args.n_tiles};
  args.n_tiles += static_cast<int32_t>(tiles_of(tiles.out));
}

SkinnyArgs args_for(const Context& context, plan::BufferId x) {
  SkinnyArgs args = {};
  args.count = context.count_of(x);
  args.x = context.f32(x);
  args.k = static_cast<int32_t>(context.width(x));
  args.scale = 1.0F;
  args.partial = context.partial;
  args.counters = context.counters;
  return args;
}

bool is_bf16(const plan::Plan& plan, plan::WeightId id) {
  return plan.weight(id).dtype == DType::bf16;
}

bool has_tiles(const plan::Plan& plan, plan::WeightId id) {
  const plan::Weight& weight = plan.weight(id);
  return weight.out > 1 &&
         tile_format(weight.dtype, weight.group.mode, weight.in) != TileFormat::none;
}

SkinnyScratch scratch_of(const plan::Plan& plan, const ProgramLimits& limits, plan::WeightId id) {
  const plan::Weight& weight = plan.weight(id);
  return skinny_scratch(weight.in, tiles_of(weight.out), std::max(limits.max_rows, 1),
                        weight.dtype == DType::bf16);
}

}  // namespace

bool fits_tiles(const plan::Plan& plan, const plan::Linear& op) {
  return has_tiles(plan, op.projection.weight);
}
bool fits_tiles(const plan::Plan& plan, const plan::NormLinear& op) {
  if (op.projections.empty() || op.projections.size() > kMaxSegments) return false;
  for (const plan::Projection& projection : op.projections) {
    if (!has_tiles(plan, projection.weight) ||
        is_bf16(plan, projection.weight) != is_bf16(plan, op.projections[0].weight))
      return false;
  }
  // Splits join tile by tile of one matrix.
  return op.projections.size() == 1 ||
         fits_one_split(plan.buffer(op.x).width, is_bf16(plan, op.projections[0].weight));
}
bool fits_tiles(const plan::Plan& plan, const plan::LinearAdd& op) {
  return !op.residual.post_norm.present && has_tiles(plan, op.weight);
}
bool fits_tiles(const plan::Plan& plan, const plan::Mlp& op) {
  const bool bf16 = is_bf16(plan, op.up);
  return !op.residual.post_norm.present && has_tiles(plan, op.up) && has_tiles(plan, op.down) &&
         (!op.gate || (has_tiles(plan, op.gate) && is_bf16(plan, op.gate) == bf16)) &&
         fits_one_split(plan.weight(op.up).in, bf16);
}

SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::Linear& op) {
  return scratch_of(plan, limits, op.projection.weight);
}
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::NormLinear& op) {
  return scratch_of(plan, limits, op.projections[0].weight);
}
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::LinearAdd& op) {
  return scratch_of(plan, limits, op.weight);
}
SkinnyScratch tile_scratch(const plan::Plan& plan, const ProgramLimits& limits,
                           const plan::Mlp& op) {
  return scratch_of(plan, limits, op.down);
}

void run_tiles(const Context& context, const plan::Linear& op) {
  SkinnyArgs args = args_for(context, op.in);
  add_segment(context, op.projection.weight, op.projection.bias, context.f32(op.projection.out),
              context.width(op.projection.out), args);
  launch_skinny(args, context.rows_of(op.in), context.stream);
}

void run_op(const Context& context, const plan::NormLinear& op) {
  SkinnyArgs args = args_for(context, op.x);
  set_norm(context, op.norm, args);
  for (const plan::Projection& p : op.projections)
    add_segment(context, p.weight, p.bias, context.f32(p.out), context.width(p.out), args);
  launch_skinny(args, context.rows_of(op.x), context.stream);
}

void run_op(const Context& context, const plan::LinearAdd& op) {
  SkinnyArgs args = args_for(context, op.in);
  add_segment(context, op.weight, op.bias, context.f32(op.residual.out),
              context.width(op.residual.out), args);
  args.scale = op.residual.scale;
  args.finish = op.residual.accumulate ? Finish::add : Finish::store;
  launch_skinny(args, context.rows_of(op.in), context.stream);
}

void run_op(const Context& context, const plan::Mlp& op) {
  const int64_t width = context.tile(op.up).out;
  auto* inner = reinterpret_cast<float*>(context.scratch);
  SkinnyArgs up = args_for(context, op.x);
  set_norm(context, op.norm, up);
  up.finish = Finish::gated;
  up.activation = op.activation;
  if (op.gate) add_segment(context, op.gate, {}, inner, width, up);
  add_segment(context, op.up, {}, inner, width, up);
  if (op.gate) up.n_tiles /= 2;
  launch_skinny(up, context.rows_of(op.x), context.stream);

  SkinnyArgs down = args_for(context, op.x);
  down.x = inner;
  down.k = static_cast<int32_t>(width);
  down.scale = op.residual.scale;
  down.finish = op.residual.accumulate ? Finish::add : Finish::store;
  add_segment(context, op.down, {}, context.f32(op.residual.out), context.width(op.residual.out),
              down);
  launch_skinny(down, context.rows_of(op.x), context.stream);
}

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& limits, const plan::Mlp& op) {
  return limits.max_rows * plan.weight(op.up).out * static_cast<int64_t>(sizeof(float));
}

// ---- Experts ----

namespace {

bool is_f16_kind(const plan::Plan& plan, plan::WeightId id) {
  return has_tiles(plan, id) && !is_bf16(plan, id);
}

TileFormat format_of(const plan::Plan& plan, plan::WeightId id) {
  const plan::Weight& weight = plan.weight(id);
  return tile_format(weight.dtype, weight.group.mode, weight.in);
}

// Choice and list lie in scratch memory of their own: a layer's later ops read them.
ExpertList list_of(const Context& context, plan::BufferId ids, int32_t n_experts) {
  const int64_t blocks = (context.limits.max_rows + 7) / 8;
  std::byte* at = context.experts;
  ExpertList list = {};
  list.n_entries = reinterpret_cast<int32_t*>(at);
  list.experts = list.n_entries + blocks;
  list.slots = reinterpret_cast<uint8_t*>(list.experts + blocks * n_experts);
  list.n_experts = n_experts;
  list.top_k = static_cast<int32_t>(context.width(ids));
  return list;
}

// The list of the choice in ids, made where Route has not.
ExpertList list_once(const Context& context, plan::BufferId ids, int32_t n_experts) {
  const ExpertList list = list_of(context, ids, n_experts);
  if (context.listed == ids) return list;
  launch_list(context.count_of(ids), context.i32(ids), list, context.rows_of(ids), context.stream);
  context.listed = ids;
  return list;
}

TileView tile_or_none(const Context& context, plan::WeightId id) {
  return id ? context.tile(id) : TileView{};
}

}  // namespace

int64_t expert_list_bytes(const ProgramLimits& limits, int32_t n_experts) {
  const int64_t blocks = (limits.max_rows + 7) / 8;
  return blocks * (4 + 4 * int64_t{n_experts} + 8 * int64_t{n_experts});
}

bool fits_tiles(const plan::Plan& plan, const plan::Route& op) {
  const plan::Weight& weight = plan.weight(op.weight);
  return op.router.n_experts <= kMaxListedExperts && op.router.top_k <= 16 && weight.out > 1 &&
         weight.dtype == DType::f32 && weight.in % 4 == 0;
}
bool fits_tiles(const plan::Plan& plan, const plan::ExpertsUp& op) {
  const plan::SharedExpert& shared = op.shared;
  if (plan.weight(op.up).experts > kMaxListedExperts || plan.buffer(op.ids).width > 16 ||
      !is_f16_kind(plan, op.up))
    return false;
  TileFormat other = format_of(plan, op.up);
  for (const plan::WeightId id : {op.gate, shared.gate, shared.up}) {
    if (!id) continue;
    if (!is_f16_kind(plan, id)) return false;
    if (unit_groups(format_of(plan, id)) > unit_groups(other) ||
        chunk_bytes(format_of(plan, id)) > chunk_bytes(other))
      other = format_of(plan, id);
  }
  if (shared.up && static_cast<bool>(shared.gate) != static_cast<bool>(op.gate)) return false;
  return fits_experts_up(plan.weight(op.up).in, static_cast<bool>(op.gate), format_of(plan, op.up),
                         other) &&
         (!shared.mix || plan.weight(shared.mix).out == 1);
}
bool fits_tiles(const plan::Plan& plan, const plan::ExpertsDown& op) {
  const plan::SharedExpert& shared = op.shared;
  if (op.residual.post_norm.present || plan.weight(op.down).experts > kMaxListedExperts ||
      plan.buffer(op.ids).width > 16 || !is_f16_kind(plan, op.down) ||
      (shared.up && !is_f16_kind(plan, shared.down)))
    return false;
  return fits_experts_down(plan.weight(op.down).in, shared.up ? plan.weight(shared.down).in : 0);
}
SkinnyScratch tile_scratch(const plan::Plan&, const ProgramLimits&, const plan::Route&) {
  return {};
}
SkinnyScratch tile_scratch(const plan::Plan&, const ProgramLimits&, const plan::ExpertsUp&) {
  return {};
}
SkinnyScratch tile_scratch(const plan::Plan&, const ProgramLimits&, const plan::ExpertsDown&) {
  return {};
}

int64_t scratch_bytes(const plan::Plan& /*plan*/, const ProgramLimits& limits,
                      const plan::Route& op) {
  return int64_t{limits.max_rows} * op.router.n_experts * 4;
}

void run_op(const Context& context, const plan::Route& op) {
  const plan::Router& router = op.router;
  auto* logits = reinterpret_cast<float*>(context.scratch);
  launch_gate({.count = context.count_of(op.x),
               .x = context.f32(op.x),
               .norm_weight = op.norm.present ? context.vector(op.norm.weight) : nullptr,
               .weight = reinterpret_cast<const float*>(context.weight(op.weight).data),
               .bias = context.vector(op.bias),
               .out = logits,
               .k = static_cast<int32_t>(context.width(op.x)),
               .n_out = router.n_experts,
               .has_norm = op.norm.present,
               .norm_eps = op.norm.eps},
              context.rows_of(op.x), context.stream);
  launch_route(context.count_of(op.x),
               {.logits = logits,
                .bias = context.vector(router.selection_bias),
                .expert_scale = context.vector(router.expert_scale),
                .ids = context.i32(op.ids),
                .weights = context.f32(op.weights),
                .score = router.score,
                .n_experts = router.n_experts,
                .top_k = router.top_k,
                .n_groups = router.n_groups,
                .top_groups = router.top_groups,
                .renormalise = router.renormalise,
                .scale = router.scale},
               list_of(context, op.ids, router.n_experts), context.rows_of(op.x), context.stream);
  context.listed = op.ids;
}

void run_op(const Context& context, const plan::ExpertsUp& op) {
  const TileView& up = context.tile(op.up);
  const ExpertList list = list_once(context, op.ids, static_cast<int32_t>(up.experts));
  launch_experts_up({.count = context.count_of(op.x),
                     .x = context.f32(op.x),
                     .norm_weight = op.norm.present ? context.vector(op.norm.weight) : nullptr,
                     .list = list,
                     .gate = tile_or_none(context, op.gate),
                     .up = up,
                     .shared_gate = tile_or_none(context, op.shared.gate),
                     .shared_up = tile_or_none(context, op.shared.up),
                     .inner = context.f32(op.inner),
                     .shared_inner = context.f32(op.shared.inner),
                     .k = static_cast<int32_t>(context.width(op.x)),
                     .has_norm = op.norm.present,
                     .norm_eps = op.norm.eps,
                     .activation = op.activation},
                    context.rows_of(op.x), context.stream);
  if (!op.shared.up || !op.shared.mix) return;
  launch_gate({.count = context.count_of(op.x),
               .x = context.f32(op.x),
               .norm_weight = op.norm.present ? context.vector(op.norm.weight) : nullptr,
               .weight = context.vector(op.shared.mix),
               .bias = nullptr,
               .out = context.f32(op.shared.mix_logit),
               .k = static_cast<int32_t>(context.width(op.x)),
               .n_out = 1,
               .has_norm = op.norm.present,
               .norm_eps = op.norm.eps},
              context.rows_of(op.x), context.stream);
}

void run_op(const Context& context, const plan::ExpertsDown& op) {
  const TileView& down = context.tile(op.down);
  const bool shared = static_cast<bool>(op.shared.up);
  const ExpertList list = list_once(context, op.ids, static_cast<int32_t>(down.experts));
  launch_experts_down({.count = context.count_of(op.ids),
                       .inner = context.f32(op.inner),
                       .weights = context.f32(op.weights),
                       .shared = shared ? context.f32(op.shared.inner) : nullptr,
                       .mix = shared && op.shared.mix ? context.f32(op.shared.mix_logit) : nullptr,
                       .list = list,
                       .down = down,
                       .shared_down = shared ? context.tile(op.shared.down) : TileView{},
                       .out = context.f32(op.residual.out),
                       .scale = op.residual.scale,
                       .accumulate = op.residual.accumulate},
                      context.rows_of(op.ids), context.stream);
}

}  // namespace kapitsa::backend::cuda
