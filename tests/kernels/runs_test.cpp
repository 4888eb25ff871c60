// What holds for every kernel case on every device: it equals the reference, and its bits depend
// neither on the rows beside it, nor on the prefill's cuts, nor on when a path is committed.
#include "kernels/kernel_test.h"

#include <algorithm>
#include <cmath>

namespace kapitsa::test {
namespace {

using backend::ComputeMode;
using backend::Device;

// The device of the test; a failure and a null pointer when it does not open.
std::unique_ptr<Device> open(const DeviceUnderTest& under_test) {
  auto device = backend::open_device(under_test.backend, under_test.options);
  if (device) return std::move(*device);
  ADD_FAILURE() << device.error().message;
  return nullptr;
}

bool has_kernels(Device& device, const PlanBuilder& builder) {
  return std::all_of(builder.tested().begin(), builder.tested().end(),
                     [&](const plan::Op& op) { return device.supports(builder.plan, op); });
}

uint64_t seed_of(const KernelCase& kernel_case) {
  uint64_t seed = 1469598103934665603U;  // FNV-1a of the name
  for (const char c : kernel_case.name)
    seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return seed;
}

// Runs every case of the group; f(builder, case) runs one that the device has kernels for. Counts
// the others, which only a device that is not complete may refuse.
template <typename F>
void for_each_case(Device& device, const KernelParam& param, F f) {
  int skipped = 0;
  for (const KernelCase& kernel_case : param.group.cases) {
    SCOPED_TRACE(param.group.op + " " + kernel_case.name);
    PlanBuilder builder(seed_of(kernel_case));
    kernel_case.build(builder);
    const Status valid = plan::validate(builder.plan);
    ASSERT_TRUE(valid) << valid.error().message;
    const bool missing = !has_kernels(device, builder);
    if (missing && !param.device.complete) {
      ++skipped;
      continue;
    }
    f(builder, kernel_case);
  }
  testing::Test::RecordProperty("cases", static_cast<int>(param.group.cases.size()));
  testing::Test::RecordProperty("skipped", skipped);
  if (skipped > 0 && skipped == static_cast<int>(param.group.cases.size()))
    GTEST_SKIP() << "no kernel for " << param.group.op;
}

Trace expect_trace(Device& device, const PlanBuilder& builder, const KernelCase& kernel_case,
                   const ScriptOptions& options) {
  auto trace = run_script(device, builder, kernel_case.prefill_tokens, options);
  if (trace) return std::move(*trace);
  ADD_FAILURE() << trace.error().message;
  Trace empty;
  return empty;
}

// Both traces exist and differ nowhere; tolerance 0 is bit equality.
void expect_same(const Trace& expected, const Trace& found, double tolerance) {
  ASSERT_EQ(expected.written.size(), found.written.size());
  const std::string difference = first_difference(expected, found, tolerance);
  EXPECT_TRUE(difference.empty()) << difference;
}

// The rows of sequence 0 only.
Trace first_sequence(Trace trace) {
  for (Trace::Written& written : trace.written)
    written.rows[1].clear();
  return trace;
}

// NaN equals NaN in a comparison, so that gaps may hold it; no row may hold nothing else.
void expect_values_in_every_row(const Trace& trace) {
  for (const Trace::Written& written : trace.written) {
    const auto width = static_cast<size_t>(written.width);
    for (const std::vector<float>& rows : written.rows) {
      for (size_t at = 0; at < rows.size(); at += width) {
        EXPECT_TRUE(std::any_of(rows.begin() + static_cast<std::ptrdiff_t>(at),
                                rows.begin() + static_cast<std::ptrdiff_t>(at + width),
                                [](float value) { return std::isfinite(value); }))
            << written.buffer << " row " << at / width;
      }
    }
  }
}

std::vector<ComputeMode> modes() {
  return {ComputeMode::f32, ComputeMode::fast};
}

TEST_P(KernelTest, EqualsTheReference) {
  const auto device = open(GetParam().device);
  ASSERT_TRUE(device);
  auto reference = backend::open_device("ref", {});
  ASSERT_TRUE(reference);
  for_each_case(*device, GetParam(), [&](const PlanBuilder& builder, const KernelCase& one) {
    const Trace expected = expect_trace(**reference, builder, one, {});
    expect_values_in_every_row(expected);
    for (const ComputeMode mode : modes()) {
      const bool fast = mode == ComputeMode::fast;
      ScriptOptions options;
      options.compute = mode;
      expect_same(expected, expect_trace(*device, builder, one, options),
                  fast && one.fast_tolerance > 0 ? one.fast_tolerance : tolerance_of(one));
    }
  });
}

TEST_P(KernelTest, ARowDoesNotDependOnItsNeighbours) {
  const auto device = open(GetParam().device);
  ASSERT_TRUE(device);
  for_each_case(*device, GetParam(), [&](const PlanBuilder& builder, const KernelCase& one) {
    for (const ComputeMode mode : modes()) {
      ScriptOptions beside;
      beside.compute = mode;
      ScriptOptions alone = beside;
      alone.beside = false;
      expect_same(first_sequence(expect_trace(*device, builder, one, beside)),
                  expect_trace(*device, builder, one, alone), 0.0);
    }
  });
}

TEST_P(KernelTest, CutsAndTheTimeOfTheCommitChangeNothing) {
  const auto device = open(GetParam().device);
  ASSERT_TRUE(device);
  for_each_case(*device, GetParam(), [&](const PlanBuilder& builder, const KernelCase& one) {
    for (const ComputeMode mode : modes()) {
      ScriptOptions plain;
      plain.compute = mode;
      ScriptOptions whole = plain;
      whole.cut = false;
      whole.flush = true;
      expect_same(expect_trace(*device, builder, one, plain),
                  expect_trace(*device, builder, one, whole), 0.0);
    }
  });
}

}  // namespace
}  // namespace kapitsa::test
