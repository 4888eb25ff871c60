// Cases of the dense primitives and of the fused ops that expand into them.
#include "kernels/kernel_test.h"

#include <fmt/format.h>

namespace kapitsa::test {
namespace {

using plan::Activation;
using plan::BufferId;
using plan::Norm;

constexpr double kFast = 0.06;  // 8-bit activations
const std::vector<int32_t> kWidths = {1, 7, 63, 64, 65, 255, 256, 257};
const std::vector<DType> kBlocks = {
    DType::q4_0,    DType::q4_1,   DType::q5_0,  DType::q5_1,    DType::q8_0,  DType::q2_k,
    DType::q3_k,    DType::q4_k,   DType::q5_k,  DType::q6_k,    DType::iq1_s, DType::iq1_m,
    DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s, DType::iq4_nl,
    DType::iq4_xs,  DType::mxfp4,  DType::nvfp4};

using Build = std::function<void(PlanBuilder&, int32_t width)>;

// One case for each width; `build` makes the op on rows of it.
KernelGroup over_widths(const char* op, const Build& build, double depth_per_element = 0) {
  KernelGroup group = {op, {}};
  for (const int32_t n : kWidths) {
    group.cases.push_back({.name = fmt::format("{} {}", op, n),
                           .build = [build, n](PlanBuilder& b) { build(b, n); },
                           .prefill_tokens = n == 64 ? 67 : 5,
                           .depth = 1 + depth_per_element * n});
  }
  return group;
}

KernelGroup embed_rows() {
  KernelGroup group = over_widths("EmbedRows", [](PlanBuilder& b, int32_t n) {
    b.op(plan::EmbedRows{b.matrix(kVocab, n), b.output(n)});
  });
  std::vector<DType> types = kBlocks;
  types.insert(types.end(), {DType::f16, DType::bf16});
  for (const DType type : types) {
    group.cases.push_back({.name = fmt::format("EmbedRows {}", dtype_info(type).name),
                           .build = [type](PlanBuilder& b) {
                             b.op(plan::EmbedRows{b.matrix(kVocab, 512, type), b.output(512)});
                           }});
  }
  for (const GroupedType& type : grouped_types()) {
    group.cases.push_back(
        {.name = "EmbedRows " + to_string(type), .build = [type](PlanBuilder& b) {
           b.op(plan::EmbedRows{b.grouped(kVocab, 256, type.group, type.scales), b.output(256)});
         }});
  }
  return group;
}

// Every type with rows of one and two blocks, and plain types at odd sizes.
KernelGroup linear() {
  KernelGroup group = {"Linear", {}};
  const auto add = [&](DType type, int32_t out, int32_t in, bool bias, int32_t prefill) {
    group.cases.push_back({.name = fmt::format("{} {}x{}{} {}", dtype_info(type).name, out, in,
                                               bias ? "+bias" : "", prefill),
                           .build =
                               [=](PlanBuilder& b) {
                                 const plan::WeightId w = b.matrix(out, in, type);
                                 const plan::WeightId bias_id =
                                     bias ? b.vector(out) : plan::WeightId{};
                                 b.op(plan::Linear{b.input(in), {w, bias_id, b.output(out)}});
                               },
                           .prefill_tokens = prefill,
                           .depth = static_cast<double>(in),
                           .fast_tolerance = kFast});
  };
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const int32_t in : kWidths)
      add(type, 7, in, in % 2 == 0, 5);
    for (const int32_t out : kWidths)
      add(type, out, 64, false, 3);
    add(type, 65, 257, true, 67);
  }
  for (const GroupedType& type : grouped_types()) {
    for (const int32_t out : {7, 65}) {
      group.cases.push_back({.name = fmt::format("{} {}x256", to_string(type), out),
                             .build =
                                 [=](PlanBuilder& b) {
                                   const plan::WeightId w =
                                       b.grouped(out, 256, type.group, type.scales);
                                   b.op(plan::Linear{b.input(256), {w, {}, b.output(out)}});
                                 },
                             .depth = 256,
                             .fast_tolerance = kFast});
    }
  }
  for (const DType type : kBlocks) {
    for (const int32_t in : {dtype_info(type).block_elements, 256, 512}) {
      for (const int32_t out : {1, 7, 65})
        add(type, out, in, out == 7, out == 65 ? 67 : 5);
    }
  }
  return group;
}

KernelGroup norms(const char* op, bool l2) {
  KernelGroup group = {op, {}};
  for (const int32_t dim : {1, 7, 64, 65, 128, 257}) {
    for (const int32_t count : {1, 3}) {
      for (const int32_t gap : {0, 5}) {
        for (const int32_t form : {0, 1, 2}) {  // weightless, shared, one weight for each head
          if (l2 && form > 0) continue;
          group.cases.push_back(
              {.name = fmt::format("{}x{} gap {} form {}", count, dim, gap, form),
               .build =
                   [=](PlanBuilder& b) {
                     if (l2) {
                       b.op(plan::L2Norm{b.readable_heads(count, dim, gap), 1e-6F, 0.25F});
                       return;
                     }
                     const plan::WeightId weight =
                         form == 0 ? plan::WeightId{} : b.vector(form == 1 ? dim : count * dim);
                     b.op(plan::RmsNorm{b.input_heads(count, dim, gap),
                                        {true, weight, 1e-5F},
                                        b.output_heads(count, dim, gap)});
                   },
               .depth = static_cast<double>(dim)});
        }
      }
    }
  }
  return group;
}

KernelGroup activate() {
  KernelGroup group = {"Activate", {}};
  for (int32_t f = 0; f <= static_cast<int32_t>(Activation::signed_sqrt); ++f) {
    for (const int32_t n : {1, 65, 256}) {
      group.cases.push_back({.name = fmt::format("function {} width {}", f, n),
                             .build =
                                 [=](PlanBuilder& b) {
                                   const BufferId in = b.input(n, -30.0F, 30.0F);
                                   b.op(plan::Activate{in, b.output(n), Activation(f)});
                                   const BufferId x = b.readable_input(n, -2.0F, 2.0F);
                                   b.op(plan::Activate{x, x, Activation(f)});
                                 },
                             .depth = 4});
    }
  }
  return group;
}

KernelGroup mul() {
  KernelGroup group = over_widths("Mul", [](PlanBuilder& b, int32_t n) {
    b.op(plan::Mul{b.input(n), b.input(n), b.output(n)});
    const BufferId x = b.readable_input(3 * n);
    b.op(plan::Mul{x, b.input(3), x});
    b.op(plan::Mul{b.input(3 * n), b.input(n), b.output(3 * n)});
  });
  return group;
}

KernelGroup copy() {
  KernelGroup group = {"Copy", {}};
  for (const int32_t dim : {1, 7, 64, 65}) {
    for (const int32_t count : {1, 3}) {
      group.cases.push_back(
          {.name = fmt::format("{}x{}", count, dim), .build = [=](PlanBuilder& b) {
             b.op(plan::Copy{b.input_heads(count, dim, 3), b.output_heads(count, dim, 0)});
             b.op(plan::Copy{b.input_heads(count, dim, 0), b.output_heads(count, dim, 5)});
           }});
    }
  }
  return group;
}

KernelGroup outputs() {
  KernelGroup group = {"TopLogits", {}};
  for (const int32_t n : {1, 7, 63, 64, 65, 257, 1009}) {
    for (const int32_t k : {1, 5}) {
      if (k > n) continue;
      group.cases.push_back(
          {.name = fmt::format("{} of {}", k, n),
           .build =
               [=](PlanBuilder& b) {
                 const BufferId logits = b.buffer(n);
                 const plan::RowSpace out = plan::RowSpace::output;
                 const BufferId rows =
                     b.plan.add_buffer({.name = "gathered", .width = n, .rows = out});
                 b.plan.add(plan::Copy{b.plan.heads(b.input(n, -9.0F, 9.0F)), b.plan.heads(logits)},
                            "copy");
                 b.op(plan::GatherOutputs{logits, rows});
                 b.op(plan::TopLogits{rows, b.output(k, DType::i32, out),
                                      b.output(k, DType::f32, out), b.output(1, DType::f32, out)});
               },
           .depth = static_cast<double>(n)});
    }
  }
  return group;
}

std::vector<KernelGroup> elementwise() {
  std::vector<KernelGroup> groups;
  groups.push_back(over_widths("Add", [](PlanBuilder& b, int32_t n) {
    b.op(plan::Add{b.input(n), b.input(n), b.output(n)});
    const BufferId x = b.readable_input(n);
    b.op(plan::Add{x, b.input(n), x});
  }));
  groups.push_back(over_widths("Affine", [](PlanBuilder& b, int32_t n) {
    b.op(plan::Affine{b.input(n), b.output(n), -1.75F, 0.3F});
    const BufferId x = b.readable_input(n);
    b.op(plan::Affine{x, x, 3.0F, 0.0F});
  }));
  groups.push_back(over_widths("ScaleColumns", [](PlanBuilder& b, int32_t n) {
    b.op(plan::ScaleColumns{b.input(n), b.output(n), b.vector(n)});
  }));
  groups.push_back(over_widths("SoftplusBias", [](PlanBuilder& b, int32_t n) {
    b.op(plan::SoftplusBias{b.input(n, -9.0F, 9.0F), b.output(n), b.vector(n), 0.5F, 4.0F});
    b.op(plan::SoftplusBias{b.input(n, -20.0F, 20.0F), b.output(n), b.vector(n)});
  }));
  groups.push_back(over_widths("Softcap", [](PlanBuilder& b, int32_t n) {
    b.op(plan::Softcap{b.input(n, -90.0F, 90.0F), b.output(n), 30.0F});
  }));
  groups.push_back(over_widths("Repeat", [](PlanBuilder& b, int32_t n) {
    b.op(plan::Repeat{b.input(n), b.output(4 * n), 4});
  }));
  groups.push_back(over_widths("SumGroups", [](PlanBuilder& b, int32_t n) {
    b.op(plan::SumGroups{b.input(4 * n), b.output(n), 4, 0.25F});
  }));
  groups.push_back(over_widths(
      "GroupDot",
      [](PlanBuilder& b, int32_t n) {
        b.op(plan::GroupDot{b.input(3 * n), b.input(3 * n), b.output(3), 3, 0.5F});
      },
      1));
  groups.push_back(over_widths(
      "Softmax",
      [](PlanBuilder& b, int32_t n) {
        b.op(plan::Softmax{b.input(n, -20.0F, 20.0F), b.output(n)});
      },
      1));
  return groups;
}

std::vector<KernelGroup> primitive_groups() {
  std::vector<KernelGroup> groups = elementwise();
  groups.insert(groups.end(), {embed_rows(), linear(), norms("RmsNorm", false),
                               norms("L2Norm", true), activate(), mul(), copy(), outputs()});
  return groups;
}

Norm norm(PlanBuilder& b, int32_t n) {
  return {true, b.vector(n), 1e-5F};
}

// Shapes of the fused cases: hidden and inner widths, and the weights' type.
struct Shape {
  int32_t hidden, inner;
  DType type;
};

KernelGroup over_shapes(const char* op, const std::function<void(PlanBuilder&, Shape)>& build) {
  KernelGroup group = {op, {}};
  for (const Shape shape :
       {Shape{7, 13, DType::f32}, Shape{64, 65, DType::f32}, Shape{256, 512, DType::f16},
        Shape{256, 256, DType::q4_1}, Shape{256, 512, DType::q8_0}, Shape{512, 256, DType::q4_k},
        Shape{256, 256, DType::q6_k}}) {
    group.cases.push_back({.name = fmt::format("{} {} {} {}", op, shape.hidden, shape.inner,
                                               dtype_info(shape.type).name),
                           .build = [=](PlanBuilder& b) { build(b, shape); },
                           .prefill_tokens = shape.inner == 512 ? 67 : 5,
                           .depth = 8.0 * (shape.hidden + shape.inner),
                           .fast_tolerance = 2 * kFast});
  }
  return group;
}

std::vector<KernelGroup> fused_groups() {
  std::vector<KernelGroup> groups;
  groups.push_back(over_shapes("Embed", [](PlanBuilder& b, Shape s) {
    b.op(plan::Embed{b.matrix(kVocab, s.hidden, s.type), 2.5F, {}, 1, b.output(s.hidden)});
    b.op(plan::Embed{b.matrix(kVocab, s.hidden, s.type), 1.0F, norm(b, s.hidden), 4,
                     b.output(4 * s.hidden)});
  }));
  groups.push_back(over_shapes("NormLinear", [](PlanBuilder& b, Shape s) {
    const BufferId x = b.input(s.hidden);
    b.op(plan::NormLinear{
        x,
        norm(b, s.hidden),
        {{b.matrix(s.inner, s.hidden, s.type), b.vector(s.inner), b.output(s.inner)},
         {b.matrix(7, s.hidden, s.type), {}, b.output(7)},
         {b.matrix(1, s.hidden, s.type), {}, b.output(1)}}});
    b.op(plan::NormLinear{x, {}, {{b.matrix(s.inner, s.hidden, s.type), {}, b.output(s.inner)}}});
  }));
  groups.push_back(over_shapes("LinearAdd", [](PlanBuilder& b, Shape s) {
    const BufferId in = b.input(s.inner);
    b.op(plan::LinearAdd{
        in, b.matrix(s.hidden, s.inner, s.type), {}, {b.readable_input(s.hidden), true, {}, 1.0F}});
    b.op(plan::LinearAdd{in,
                         b.matrix(s.hidden, s.inner, s.type),
                         b.vector(s.hidden),
                         {b.readable_input(s.hidden), true, norm(b, s.hidden), 0.5F}});
    b.op(plan::LinearAdd{
        in, b.matrix(s.hidden, s.inner, s.type), {}, {b.output(s.hidden), false, {}, 1.0F}});
  }));
  groups.push_back(over_shapes("Mlp", [](PlanBuilder& b, Shape s) {
    const auto mlp = [&](bool gated, Activation activation, const plan::Residual& residual) {
      const plan::WeightId gate = gated ? b.matrix(s.inner, s.hidden, s.type) : plan::WeightId{};
      b.op(plan::Mlp{b.input(s.hidden), norm(b, s.hidden), gate,
                     b.matrix(s.inner, s.hidden, s.type), b.matrix(s.hidden, s.inner, s.type),
                     activation, residual});
    };
    mlp(true, Activation::silu, {b.readable_input(s.hidden), true, {}, 1.0F});
    mlp(true, Activation::gelu_tanh, {b.readable_input(s.hidden), true, norm(b, s.hidden), 1.0F});
    mlp(false, Activation::relu_squared, {b.output(s.hidden), false, {}, 1.0F});
  }));
  groups.push_back(over_shapes("Head", [](PlanBuilder& b, Shape s) {
    const plan::RowSpace out = plan::RowSpace::output;
    b.op(plan::Head{b.input(s.hidden),
                    norm(b, s.hidden),
                    b.matrix(97, s.hidden, s.type),
                    0.5F,
                    30.0F,
                    b.output(97, DType::f32, out),
                    {},
                    {},
                    {}});
  }));
  groups.push_back(over_shapes("MtpJoin", [](PlanBuilder& b, Shape s) {
    b.op(plan::MtpJoin{b.input(s.hidden), b.input(s.hidden), norm(b, s.hidden), norm(b, s.hidden),
                       b.matrix(s.hidden, 2 * s.hidden, s.type), b.output(s.hidden)});
  }));
  groups.push_back(over_shapes("MtpJoinOfStreams", [](PlanBuilder& b, Shape s) {
    const int32_t wide = 3 * s.hidden;
    b.op(plan::MtpJoin{b.input(s.hidden), b.input(wide), norm(b, s.hidden), norm(b, wide),
                       b.matrix(s.hidden, 2 * s.hidden, s.type), b.output(wide), 3});
  }));
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Dense, KernelTest, kernel_params(primitive_groups()), kernel_name);
INSTANTIATE_TEST_SUITE_P(DenseFused, KernelTest, kernel_params(fused_groups()), kernel_name);

}  // namespace
}  // namespace kapitsa::test
