// Cases of the ops that only some families have: n-grams, residual streams, self-conditioning.
#include "kernels/kernel_test.h"

#include <fmt/format.h>

namespace kapitsa::test {
namespace {

using plan::BufferId;
using plan::Norm;

constexpr int32_t kEos = 14;  // the script's tree holds it

plan::NgramRows ngram_rows(PlanBuilder& b, int32_t n, BufferId out) {
  b.plan.n_history = 2;
  return {.table = b.matrix(11 + 13 + 17 + 19, n),
          .multipliers = {23703573157769, 20109073645365, 8052911324071},
          .head_offsets = {0, 11, 24, 41},
          .head_vocab = {11, 13, 17, 19},
          .heads_per_ngram = 2,
          .eos_token = kEos,
          .out = out};
}

Norm norm(PlanBuilder& b, int64_t n) {
  return {true, b.vector(n), 1e-4F};
}

KernelGroup over_widths(const char* op, const std::function<void(PlanBuilder&, int32_t)>& build,
                        double depth) {
  KernelGroup group = {op, {}};
  for (const int32_t n : {1, 7, 64, 65}) {
    group.cases.push_back({.name = fmt::format("{} {}", op, n),
                           .build = [=](PlanBuilder& b) { build(b, n); },
                           .prefill_tokens = n == 7 ? 70 : 5,
                           .depth = depth * n,
                           .fast_tolerance = 0.1});
  }
  return group;
}

void build_ngram_embed(PlanBuilder& b, int32_t hidden) {
  const int32_t streams = 3;
  const int64_t wide = int64_t{streams} * hidden;
  const BufferId e = b.buffer(4 * 5);
  plan::NgramEmbed op;
  op.rows = ngram_rows(b, 5, e);
  op.key = b.matrix(wide, 20);
  op.value = b.matrix(hidden, 20);
  op.key_norm = norm(b, wide);
  op.query_norm = norm(b, wide);
  op.conv_norm = norm(b, wide);
  op.streams = streams;
  op.conv = b.matrix(wide, 4);
  op.memory = b.memory(9 * wide, wide);
  op.x = b.readable_input(wide);
  b.op(op);
}

void build_stream_mix(PlanBuilder& b, int32_t hidden) {
  const int64_t wide = int64_t{4} * hidden;
  for (const bool inject : {true, false}) {
    plan::StreamMix op;
    op.x = b.input(wide);
    op.norm = norm(b, wide);
    op.streams = 4;
    op.down = b.matrix(9, wide);
    op.up = b.matrix(wide, 9);
    op.out = b.output(hidden);
    if (inject) {
      op.inject = b.matrix(4, wide);
      op.inject_out = b.output(4);
    }
    b.op(op);
  }
}

std::vector<KernelGroup> groups() {
  return {
      over_widths(
          "NgramRows", [](PlanBuilder& b, int32_t n) { b.op(ngram_rows(b, n, b.output(4 * n))); },
          1),
      over_widths("NgramEmbed", build_ngram_embed, 256),
      over_widths("StreamMix", build_stream_mix, 64),
      over_widths(
          "StreamAdd",
          [](PlanBuilder& b, int32_t n) {
            b.op(plan::StreamAdd{b.input(n), b.input(4), b.readable_input(4 * n)});
          },
          1),
      over_widths(
          "SoftEmbed",
          [](PlanBuilder& b, int32_t n) {
            const BufferId p = b.input(97, 0.0F, 0.02F);
            b.op(plan::SoftEmbed{p, b.matrix(97, n), 3.0F, b.output(n)});
          },
          97),
      over_widths(
          "SelfCondition",
          [](PlanBuilder& b, int32_t n) {
            b.op(plan::SelfCondition{b.input(97, -5.0F, 5.0F), b.matrix(97, n), 3.0F, norm(b, n),
                                     Norm{true, {}, 1e-4F}, b.matrix(12, n), b.matrix(12, n),
                                     b.matrix(n, 12), b.readable_input(n)});
          },
          1024),
  };
}

INSTANTIATE_TEST_SUITE_P(Special, KernelTest, kernel_params(groups()), kernel_name);

}  // namespace
}  // namespace kapitsa::test
