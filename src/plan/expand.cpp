#include "plan/expand.h"

#include <type_traits>

namespace kapitsa::plan {
namespace {

template <typename T>
concept Fused = requires(const T& op, Plan& plan) { expand_op(op, plan); };

}  // namespace

std::optional<std::vector<Op>> expand(const Op& op, Plan& plan) {
  return std::visit(
      [&](const auto& concrete) -> std::optional<std::vector<Op>> {
        if constexpr (Fused<std::remove_cvref_t<decltype(concrete)>>) {
          return expand_op(concrete, plan);
        } else {
          return std::nullopt;
        }
      },
      op);
}

bool is_primitive(const Op& op) {
  return std::visit(
      [](const auto& concrete) { return !Fused<std::remove_cvref_t<decltype(concrete)>>; }, op);
}

const char* op_name(const Op& op) {
  // In the order of the variant.
  static constexpr const char* kNames[] = {
      "Embed",     "NormLinear",    "LinearAdd",     "AttentionPrepare",
      "Attention", "DeltaMix",      "MambaMix",      "Route",
      "ExpertsUp", "ExpertsDown",   "Mlp",           "StreamMix",
      "StreamAdd", "IndexSelect",   "NgramEmbed",    "SelfCondition",
      "MtpJoin",   "Head",          "EmbedRows",     "RmsNorm",
      "L2Norm",    "Linear",        "Add",           "Mul",
      "Affine",    "Activate",      "ScaleColumns",  "SoftplusBias",
      "Softcap",   "Copy",          "Repeat",        "SumGroups",
      "GroupDot",  "Softmax",       "ApplyRope",     "CacheAppend",
      "Attend",    "SelectBlocks",  "CausalConv",    "DeltaRule",
      "SsmScan",   "SelectExperts", "ExpertLinear",  "CombineExperts",
      "NgramRows", "SoftEmbed",     "GatherOutputs", "TopLogits",
      "Sample"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>, "one name for every op");
  return kNames[op.index()];
}

}  // namespace kapitsa::plan
