#include "engine/self_test.h"

#include "base/check.h"
#include "weights/quantise.h"

#include <cmath>
#include <cstring>

namespace kapitsa::engine {
namespace {

// 8-bit activations: about half a step of 1/127 for each value, averaged over the sum.
constexpr double kByteActivations = 0.03;
// Weights with 16 bits may be multiplied in their own precision.
constexpr double kHalfActivations = 0.01;

void linear(TestPlan& t, DType dtype) {
  const auto in = t.input(512);
  t.plan.add(plan::Linear{in, {t.matrix(37, 512, dtype), t.vector(37, -1.0F), t.output(37)}},
             "linear");
}

void attention(TestPlan& t, DType cache) {
  constexpr int32_t kHeads = 4, kKvHeads = 2, kDim = 32;
  const auto q = t.input(int64_t{kHeads} * kDim);
  const auto k = t.input(int64_t{kKvHeads} * kDim);
  const auto v = t.input(int64_t{kKvHeads} * kDim);
  const auto k_cache = t.cache(int64_t{kKvHeads} * kDim, cache);
  const auto v_cache = t.cache(int64_t{kKvHeads} * kDim, cache);
  const auto out = t.output(int64_t{kHeads} * kDim);
  t.plan.add(plan::CacheAppend{t.plan.heads(k, kKvHeads), k_cache}, "k");
  t.plan.add(plan::CacheAppend{t.plan.heads(v, kKvHeads), v_cache}, "v");
  t.plan.add(plan::Attend{.q = t.plan.heads(q, kHeads),
                          .k_cache = k_cache,
                          .v_cache = v_cache,
                          .n_kv_heads = kKvHeads,
                          .scale = 0.5F,
                          .out = t.plan.heads(out, kHeads)},
             "attend");
}

void rope(TestPlan& t) {
  const auto x = t.input(64);
  const auto out = t.output(64);
  plan::Rope rope{.inv_freq = {}, .pairs = plan::RopePairs::half};
  for (int i = 0; i < 16; ++i)
    rope.inv_freq.push_back(std::pow(10.0F, -0.25F * static_cast<float>(i)));
  t.plan.add(plan::ApplyRope{t.plan.heads(x, 2), rope}, "rope");
  t.plan.add(plan::Copy{t.plan.heads(x), t.plan.heads(out)}, "copy");
}

void experts(TestPlan& t, DType dtype) {
  constexpr int32_t kExperts = 8, kTopK = 2, kWidth = 48;
  const auto x = t.input(256);
  const auto logits = t.buffer(kExperts);
  const auto ids = t.buffer(kTopK, DType::i32);
  const auto weights = t.buffer(kTopK);
  const auto inner = t.buffer(int64_t{kTopK} * kWidth);
  t.plan.add(plan::Linear{x, {t.matrix(kExperts, 256), {}, logits}}, "router");
  t.plan.add(
      plan::SelectExperts{
          logits, {.n_experts = kExperts, .top_k = kTopK, .renormalise = true}, ids, weights},
      "select");
  t.plan.add(plan::ExpertLinear{x, t.matrix(kWidth, 256, dtype, kExperts), ids, inner}, "experts");
  t.plan.add(plan::CombineExperts{inner, weights, t.output(kWidth)}, "combine");
}

void convolution(TestPlan& t) {
  constexpr int64_t kWidth = 40;
  const auto in = t.input(kWidth);
  t.plan.add(plan::CausalConv{.in = in,
                              .out = t.output(kWidth),
                              .weight = t.matrix(kWidth, 4),
                              .bias = {},
                              .taps = 4,
                              .activation = plan::Activation::silu,
                              .memory = t.memory(3 * kWidth, kWidth)},
             "conv");
}

void delta_rule(TestPlan& t) {
  constexpr int32_t kK = 2, kV = 4, kDim = 16;
  const auto q = t.input(int64_t{kK} * kDim, -0.3F, 0.3F);
  const auto k = t.input(int64_t{kK} * kDim, -0.3F, 0.3F);
  const auto v = t.input(int64_t{kV} * kDim);
  const auto out = t.output(int64_t{kV} * kDim);
  t.plan.add(plan::DeltaRule{.q = t.plan.heads(q, kK),
                             .k = t.plan.heads(k, kK),
                             .v = t.plan.heads(v, kV),
                             .decay = t.input(kV, -0.5F, -0.01F),
                             .beta = t.input(kV, 0.1F, 0.9F),
                             .memory = t.memory(int64_t{kV} * kDim * kDim,
                                                int64_t{kK} * kDim + int64_t{kV} * (kDim + 1)),
                             .out = t.plan.heads(out, kV)},
             "delta");
}

void ssm_scan(TestPlan& t) {
  constexpr int32_t kHeads = 4, kP = 8, kN = 16, kGroups = 2;
  const auto x = t.input(int64_t{kHeads} * kP);
  const auto b = t.input(int64_t{kGroups} * kN);
  const auto c = t.input(int64_t{kGroups} * kN);
  const auto out = t.output(int64_t{kHeads} * kP);
  t.plan.add(plan::SsmScan{.x = t.plan.heads(x, kHeads),
                           .dt = t.input(kHeads, 0.01F, 0.5F),
                           .b = t.plan.heads(b, kGroups),
                           .c = t.plan.heads(c, kGroups),
                           .a = t.vector(kHeads, -2.0F, -0.5F),
                           .d = t.vector(kHeads),
                           .memory = t.memory(int64_t{kHeads} * kP * kN,
                                              int64_t{kHeads} * (kP + 1) + int64_t{kGroups} * kN),
                           .out = t.plan.heads(out, kHeads)},
             "ssm");
}

}  // namespace

TestPlan::TestPlan() {
  plan.begin_routine("self-test");
  plan.n_vocab = kSelfTestVocab;
}

std::string TestPlan::name(const char* kind) {
  return std::string(kind) + std::to_string(n_names_++);
}

// Multiplicative congruential generator (Knuth's MMIX constants); its quality is no matter here.
float TestPlan::uniform(float low, float high) {
  random_ = random_ * 6364136223846793005U + 1442695040888963407U;
  return low + (high - low) * static_cast<float>(random_ >> 40) * 0x1p-24F;
}

plan::WeightId TestPlan::weight(std::span<const float> values, int64_t out, int64_t in, DType dtype,
                                int64_t experts) {
  auto bytes = weights::quantise(dtype, values);
  KAPITSA_CHECK(bytes.ok(), "the self-test uses types that can be encoded");
  storage_.push_back(std::move(*bytes));
  return plan.add_weight({.name = name("weight"),
                          .dtype = dtype,
                          .experts = experts,
                          .out = out,
                          .in = in,
                          .data = storage_.back()});
}

plan::WeightId TestPlan::matrix(int64_t out, int64_t in, DType dtype, int64_t experts) {
  const float size = 1.0F / std::sqrt(static_cast<float>(in));
  std::vector<float> values(static_cast<size_t>(experts * out * in));
  for (float& value : values)
    value = uniform(-size, size);
  return weight(values, out, in, dtype, experts);
}

plan::WeightId TestPlan::vector(int64_t n, float low, float high) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values)
    value = uniform(low, high);
  return weight(values, 1, n, DType::f32, 1);
}

plan::BufferId TestPlan::buffer(int64_t width, DType dtype) {
  return plan.add_buffer({.name = name("buffer"), .dtype = dtype, .width = width});
}

plan::BufferId TestPlan::input(int64_t width, float low, float high) {
  std::vector<float> values(static_cast<size_t>(kSelfTestVocab * width));
  for (float& value : values)
    value = uniform(low, high);
  const plan::BufferId out = buffer(width);
  plan.add(plan::EmbedRows{weight(values, kSelfTestVocab, width, DType::f32, 1), out}, "input");
  return out;
}

plan::BufferId TestPlan::output(int64_t width, DType dtype) {
  outputs.push_back(
      plan.add_buffer({.name = name("output"), .dtype = dtype, .width = width, .readable = true}));
  return outputs.back();
}

plan::StateId TestPlan::cache(int64_t width, DType dtype) {
  return plan.add_state({.name = name("cache"), .dtype = dtype, .width = width});
}

plan::Recurrent TestPlan::memory(int64_t state_width, int64_t tape_width) {
  return {plan.add_state({.name = name("state"),
                          .kind = plan::StateKind::recurrent,
                          .dtype = DType::f32,
                          .width = state_width}),
          plan.add_state({.name = name("tape"),
                          .kind = plan::StateKind::tape,
                          .dtype = DType::f32,
                          .width = tape_width})};
}

std::vector<SelfTestCase> self_test_cases() {
  std::vector<SelfTestCase> cases;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0,
                            DType::q4_1, DType::q5_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    cases.push_back({"linear " + std::string(dtype_info(dtype).name),
                     [dtype](TestPlan& t) { linear(t, dtype); },
                     is_quantised(dtype)   ? kByteActivations
                     : dtype == DType::f32 ? 0.0
                                           : kHalfActivations});
  }
  cases.push_back({"experts q4_k", [](TestPlan& t) { experts(t, DType::q4_k); }, kByteActivations});
  cases.push_back(
      {"attention f16 cache", [](TestPlan& t) { attention(t, DType::f16); }, kHalfActivations});
  cases.push_back(
      {"attention int8 cache", [](TestPlan& t) { attention(t, DType::q8_0); }, kHalfActivations});
  cases.push_back({"rope", rope, 0.0});
  cases.push_back(
      {"rms norm",
       [](TestPlan& t) {
         const auto in = t.input(96);
         const auto out = t.output(96);
         t.plan.add(plan::RmsNorm{t.plan.heads(in), {true, t.vector(96), 1e-5F}, t.plan.heads(out)},
                    "norm");
       },
       0.0});
  cases.push_back({"silu",
                   [](TestPlan& t) {
                     const auto in = t.input(75, -8.0F, 8.0F);
                     t.plan.add(plan::Activate{in, t.output(75), plan::Activation::silu}, "silu");
                   },
                   0.0});
  cases.push_back({"softmax",
                   [](TestPlan& t) {
                     const auto in = t.input(75, -8.0F, 8.0F);
                     t.plan.add(plan::Softmax{in, t.output(75)}, "softmax");
                   },
                   0.0});
  cases.push_back({"convolution", convolution, 0.0});
  cases.push_back({"delta rule", delta_rule, kHalfActivations});
  cases.push_back({"state-space scan", ssm_scan, kHalfActivations});
  return cases;
}

}  // namespace kapitsa::engine
