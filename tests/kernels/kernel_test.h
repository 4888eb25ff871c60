// The test fixture of kernel cases. A file of cases instantiates it with one line:
//   INSTANTIATE_TEST_SUITE_P(Dense, KernelTest, kernel_params(dense_groups()), kernel_name);
#pragma once

#include "support/kernel_case.h"

#include <gtest/gtest.h>

#include <ostream>

namespace kapitsa::test {

struct KernelParam {
  DeviceUnderTest device;
  KernelGroup group;

  friend void PrintTo(const KernelParam& param, std::ostream* out) {
    *out << param.device.name << " " << param.group.op;
  }
};

class KernelTest : public testing::TestWithParam<KernelParam> {};

inline auto kernel_params(const std::vector<KernelGroup>& groups, bool recurrences = false) {
  std::vector<KernelParam> params;
  for (const DeviceUnderTest& device : devices_under_test()) {
    if (device.recurrences && !recurrences) continue;
    for (const KernelGroup& group : groups)
      params.push_back({device, group});
  }
  return testing::ValuesIn(params);
}

// The group encodings of MLX, each with the scales that files have.
struct GroupedType {
  GroupQuant group;
  DType scales = DType::bf16;
};
inline std::vector<GroupedType> grouped_types() {
  std::vector<GroupedType> types;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const DType scales : {DType::bf16, DType::f16, DType::f32})
      types.push_back({{bits, 64, GroupMode::affine}, scales});
  }
  types.push_back({{4, 32, GroupMode::affine}});
  types.push_back({{8, 128, GroupMode::affine}});
  types.push_back({{4, 32, GroupMode::mxfp4}});
  types.push_back({{8, 32, GroupMode::mxfp8}});
  types.push_back({{4, 16, GroupMode::nvfp4}});
  return types;
}
inline std::string to_string(const GroupedType& type) {
  return "mode " + std::to_string(static_cast<int>(type.group.mode)) + " bits " +
         std::to_string(type.group.bits) + " group " + std::to_string(type.group.group) +
         " scales " + std::string(dtype_info(type.scales).name);
}

inline std::string kernel_name(const testing::TestParamInfo<KernelParam>& info) {
  return info.param.device.name + "_" + info.param.group.op;
}

}  // namespace kapitsa::test
