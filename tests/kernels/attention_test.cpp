// Cases of rope, the paged cache, attention and block selection.
#include "kernels/kernel_test.h"

#include <fmt/format.h>

#include <cmath>

namespace kapitsa::test {
namespace {

using plan::Heads;
using plan::Mask;

plan::Rope rope(int32_t rotary_dims, plan::RopePairs pairs = plan::RopePairs::half) {
  plan::Rope result;
  result.pairs = pairs;
  result.magnitude = 1.1F;
  for (int32_t i = 0; i < rotary_dims / 2; ++i)
    result.inv_freq.push_back(
        std::pow(10000.0F, -2.0F * static_cast<float>(i) / static_cast<float>(rotary_dims)));
  return result;
}

KernelGroup apply_rope() {
  KernelGroup group = {"ApplyRope", {}};
  for (const int32_t dim : {2, 64, 80, 128}) {
    for (const int32_t rotary : {dim, dim / 4 * 2}) {
      for (const auto pairs : {plan::RopePairs::half, plan::RopePairs::adjacent}) {
        for (const int32_t gap : {0, 3}) {
          group.cases.push_back(
              {.name = fmt::format("{} of {} pairs {} gap {}", rotary, dim, static_cast<int>(pairs),
                                   gap),
               .build =
                   [=](PlanBuilder& b) {
                     b.op(plan::ApplyRope{b.readable_heads(3, dim, gap), rope(rotary, pairs)});
                   },
               .prefill_tokens = 131,
               .depth = 4096});  // the angle is rounded at up to 140 radians
        }
      }
    }
  }
  return group;
}

struct AttentionShape {
  int32_t heads = 4, kv_heads = 2, dim = 16, v_dim = 16;
  DType cache = DType::f32;
  int32_t gap = 0;
  int32_t window = 0;
  float softcap = 0.0F;
  bool sinks = false;
  Mask mask = Mask::causal;
  int32_t block = 0;
  int32_t selected = 0;  // blocks of 4 that the row attends to
  int32_t prefill = 70;
};

std::string name_of(const AttentionShape& s) {
  return fmt::format("{}/{} dim {}/{} {} gap {} window {} cap {} sinks {} mask {}/{} selected {} "
                     "after {}",
                     s.heads, s.kv_heads, s.dim, s.v_dim, dtype_info(s.cache).name, s.gap, s.window,
                     s.softcap, s.sinks, static_cast<int>(s.mask), s.block, s.selected, s.prefill);
}

// Selects blocks with the indexer of SelectBlocks on its own keys.
plan::BufferId select_blocks(PlanBuilder& b, const AttentionShape& s) {
  const plan::BufferId selection = b.output(s.selected + 1, DType::i32);
  const plan::StateId keys = b.cache(8);
  b.op(plan::CacheAppend{b.input_heads(1, 8), keys});
  b.op(plan::SelectBlocks{.q = b.input_heads(2, 8),
                          .key_cache = keys,
                          .key_norm = {true, b.vector(8), 1e-6F},
                          .rope = rope(4),
                          .ratio = 4,
                          .budget = s.selected,
                          .out = selection});
  return selection;
}

plan::Attend attend(PlanBuilder& b, const AttentionShape& s, const Heads& out) {
  const plan::StateId k_cache = b.cache(int64_t{s.kv_heads} * s.dim, s.cache);
  const plan::StateId v_cache = b.cache(int64_t{s.kv_heads} * s.v_dim, s.cache);
  b.op(plan::CacheAppend{b.input_heads(s.kv_heads, s.dim, s.gap), k_cache});
  b.op(plan::CacheAppend{b.input_heads(s.kv_heads, s.v_dim, s.gap), v_cache});
  plan::Attend op = {.q = b.input_heads(s.heads, s.dim, s.gap, -3.0F, 3.0F),
                     .k_cache = k_cache,
                     .v_cache = v_cache,
                     .n_kv_heads = s.kv_heads,
                     .scale = 1.0F / std::sqrt(static_cast<float>(s.dim)),
                     .softcap = s.softcap,
                     .window = s.window,
                     .mask = s.mask,
                     .block = s.block,
                     .out = out};
  if (s.sinks) op.sinks = b.vector(s.heads, -1.0F, 2.0F);
  if (s.selected > 0) {
    op.selection = select_blocks(b, s);
    op.selection_block = 4;
  }
  return op;
}

KernelCase case_of(const AttentionShape& s, std::function<void(PlanBuilder&)> build) {
  // The codes of q8_0 are the reference's; q may have 15 bits beside them.
  const double unit = s.cache == DType::f32    ? 0x1p-24
                      : s.cache == DType::f16  ? 0x1p-12
                      : s.cache == DType::q8_0 ? 0x1p-13
                                               : 0x1p-9;
  return {.name = name_of(s),
          .build = std::move(build),
          .prefill_tokens = s.prefill,
          .depth = s.cache == DType::f32 ? 1024.0 : 1.0,
          .unit = unit,
          .fast_tolerance = 0.01};
}

std::vector<AttentionShape> attention_shapes() {
  return {
      {},
      {.heads = 1, .kv_heads = 1, .dim = 1, .v_dim = 1},
      {.heads = 6, .kv_heads = 2, .dim = 7, .v_dim = 7, .gap = 3},
      {.heads = 9, .kv_heads = 3, .dim = 64, .v_dim = 64, .prefill = 131},
      {.heads = 2, .kv_heads = 1, .dim = 128, .v_dim = 128, .prefill = 257},
      {.heads = 2, .kv_heads = 1, .dim = 128, .v_dim = 64, .prefill = 320},
      {.cache = DType::f16},
      {.heads = 8, .kv_heads = 1, .dim = 256, .v_dim = 256, .cache = DType::f16},
      {.cache = DType::bf16},
      {.heads = 9, .kv_heads = 3, .dim = 64, .v_dim = 64, .cache = DType::q8_0, .prefill = 320},
      {.dim = 128, .v_dim = 64, .cache = DType::q8_0, .gap = 3, .prefill = 131},
      {.heads = 8, .kv_heads = 1, .dim = 256, .v_dim = 256, .cache = DType::q8_0, .prefill = 64},
      {.heads = 2, .kv_heads = 1, .dim = 288, .v_dim = 32, .cache = DType::q8_0, .window = 17},
      {.dim = 32, .v_dim = 96, .cache = DType::q8_0, .softcap = 5.0F, .sinks = true, .prefill = 65},
      {.dim = 32, .v_dim = 32, .cache = DType::q8_0, .mask = Mask::block, .block = 4},
      {.dim = 32, .v_dim = 32, .cache = DType::q8_0, .mask = Mask::bidirectional},
      {.dim = 32, .v_dim = 32, .cache = DType::q8_0, .selected = 3},
      {.window = 1},
      {.window = 17},
      {.window = 64, .prefill = 131},
      {.softcap = 5.0F},
      {.sinks = true},
      {.window = 9, .softcap = 20.0F, .sinks = true},
      {.mask = Mask::block, .block = 4},
      {.mask = Mask::block, .block = 64, .prefill = 131},
      {.mask = Mask::bidirectional},
      {.window = 16, .mask = Mask::bidirectional},
      {.selected = 3},
      {.selected = 100},
      {.prefill = 1},
      {.prefill = 63},
      {.prefill = 64},
      {.prefill = 65},
  };
}

// Masks that look ahead depend on the rows of the pass, so a cut changes them by definition: they
// run on one pass.
AttentionShape uncut(AttentionShape s) {
  if (s.mask == Mask::bidirectional) s.prefill = std::min(s.prefill, 60);
  return s;
}

KernelGroup attend_group() {
  KernelGroup group = {"Attend", {}};
  for (const AttentionShape& shape : attention_shapes()) {
    const AttentionShape s = uncut(shape);
    group.cases.push_back(case_of(
        s, [s](PlanBuilder& b) { b.op(attend(b, s, b.output_heads(s.heads, s.v_dim, s.gap))); }));
  }
  return group;
}

KernelGroup attention_group() {
  KernelGroup group = {"Attention", {}};
  for (const AttentionShape& shape : attention_shapes()) {
    AttentionShape s = uncut(shape);
    s.gap = 0;
    group.cases.push_back(case_of(s, [s](PlanBuilder& b) {
      const Heads elementwise = b.input_heads(s.heads, s.v_dim, 3, -4.0F, 4.0F);
      b.op(plan::Attention{attend(b, s, b.output_heads(s.heads, s.v_dim)), elementwise,
                           plan::Activation::sigmoid});
      const Heads per_head = b.input_heads(s.heads, 1, 0, -4.0F, 4.0F);
      b.op(plan::Attention{attend(b, s, b.output_heads(s.heads, s.v_dim)), per_head,
                           plan::Activation::softplus});
    }));
    group.cases.back().name += " gated";
  }
  return group;
}

KernelGroup prepare_group() {
  KernelGroup group = {"AttentionPrepare", {}};
  for (const int32_t dim : {8, 64, 128, 256}) {
    for (const bool norms : {false, true}) {
      const DType cache = dim == 128 ? DType::q8_0 : DType::f32;
      group.cases.push_back({.name = fmt::format("prepare {} norms {}", dim, norms),
                             .build =
                                 [=](PlanBuilder& b) {
                                   const auto norm = [&] {
                                     return norms ? plan::Norm{true, b.vector(dim), 1e-6F}
                                                  : plan::Norm{};
                                   };
                                   const plan::StateId k_cache = b.cache(2 * dim, cache);
                                   const plan::StateId v_cache = b.cache(2 * dim, cache);
                                   const Heads q = b.readable_heads(4, dim, norms ? dim : 0);
                                   b.op(plan::AttentionPrepare{
                                       .q = q,
                                       .k = b.input_heads(2, dim),
                                       .v = b.input_heads(2, dim),
                                       .q_norm = norm(),
                                       .k_norm = norm(),
                                       .v_norm = norms ? plan::Norm{true, {}, 1e-6F} : plan::Norm{},
                                       .q_scale = norms ? 0.5F : 1.0F,
                                       .rope = rope(dim / 2),
                                       .k_cache = k_cache,
                                       .v_cache = v_cache});
                                   // What the caches hold shows in what is attended to.
                                   b.op(plan::Attend{.q = q,
                                                     .k_cache = k_cache,
                                                     .v_cache = v_cache,
                                                     .n_kv_heads = 2,
                                                     .scale = 0.3F,
                                                     .out = b.output_heads(4, dim)});
                                 },
                             .prefill_tokens = 70,
                             .depth = cache == DType::f32 ? 4096.0 : 1.0,
                             // A code may be rounded the other way.
                             .unit = cache == DType::f32 ? 0x1p-24 : 0x1p-10});
    }
  }
  return group;
}

KernelGroup index_group() {
  KernelGroup group = {"IndexSelect", {}};
  for (const int32_t ratio : {1, 4, 5}) {
    for (const int32_t budget : {1, 6, 64}) {
      group.cases.push_back(
          {.name = fmt::format("blocks of {} best {}", ratio, budget),
           .build =
               [=](PlanBuilder& b) {
                 const Heads q = b.readable_heads(4, 16);
                 const Heads k = b.input_heads(1, 16, 4);
                 b.op(plan::IndexSelect{q,
                                        k,
                                        {true, b.vector(16), 1e-6F},
                                        {.q = q,
                                         .key_cache = b.cache(16),
                                         .key_norm = {true, b.vector(16), 1e-6F},
                                         .rope = rope(8),
                                         .ratio = ratio,
                                         .budget = budget,
                                         .out = b.output(budget + 1, DType::i32)}});
               },
           .prefill_tokens = 70,
           .depth = 4096});
    }
  }
  return group;
}

INSTANTIATE_TEST_SUITE_P(Attention, KernelTest,
                         kernel_params({apply_rope(), attend_group(), attention_group(),
                                        prepare_group(), index_group()}),
                         kernel_name);

}  // namespace
}  // namespace kapitsa::test
