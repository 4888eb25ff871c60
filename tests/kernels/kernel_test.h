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

inline auto kernel_params(const std::vector<KernelGroup>& groups) {
  std::vector<KernelParam> params;
  for (const DeviceUnderTest& device : devices_under_test()) {
    for (const KernelGroup& group : groups)
      params.push_back({device, group});
  }
  return testing::ValuesIn(params);
}

inline std::string kernel_name(const testing::TestParamInfo<KernelParam>& info) {
  return info.param.device.name + "_" + info.param.group.op;
}

}  // namespace kapitsa::test
