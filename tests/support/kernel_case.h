// Kernel cases as data: an op with shapes, types and a seed. One case runs the same script of
// passes (prefill, a tree beside another sequence, the accepted path's replay, one row) on the
// reference and on a device, and compares everything that was written.
#pragma once

#include "support/plan_builder.h"
#include "support/plan_runner.h"

#include <functional>
#include <string>
#include <vector>

namespace kapitsa::test {

struct KernelCase {
  std::string name;  // shapes and types, for the failure message
  std::function<void(PlanBuilder&)> build;
  int32_t prefill_tokens = 5;
  double depth = 1;  // length of the longest sum, times steps that build on each other
  double unit =
      0x1p-24;  // rounding of the narrowest number on the way, e.g. 2^-11 for an f16 cache
  // Relative to the largest value of the row (of all rows, if a row has only a few values), in
  // ComputeMode::fast; 0: as in f32.
  double fast_tolerance = 0.0;
};

// All cases of one op.
struct KernelGroup {
  std::string op;
  std::vector<KernelCase> cases;
};

// What a script wrote: for each output buffer the rows of sequence 0 in order, then those of
// sequence 1.
struct Trace {
  struct Written {
    std::string buffer;
    int64_t width = 0;
    std::vector<float> rows[2];
  };
  std::vector<Written> written;
};

struct ScriptOptions {
  bool beside = true;  // rows of sequence 1 in the decode passes
  bool cut = true;     // prefill in two passes where the grid allows it
  bool flush = false;  // commit at once instead of replaying in the next pass
  backend::ComputeMode compute = backend::ComputeMode::f32;
};

// `unsupported` when the device has no kernel for the op or its types.
Result<Trace> run_script(backend::Device& device, const PlanBuilder& builder,
                         int32_t prefill_tokens, const ScriptOptions& options);

// Empty when `found` is within `tolerance` of `expected`, relative to the largest finite value of
// each row (see fast_tolerance); NaN must meet NaN. Otherwise the first difference, in one line.
std::string first_difference(const Trace& expected, const Trace& found, double tolerance);

// The tolerance of a case in f32.
double tolerance_of(const KernelCase& kernel_case);

// What the cases run on: the reference, and every backend of the build that opens here, the CPU
// once for each of its instruction sets. `must_open`: one that does not open is listed all the
// same, and its tests fail. `complete`: it has every primitive, so that an op it refuses is a
// failure and not a skip.
struct DeviceUnderTest {
  std::string name;  // of the test
  std::string backend;
  backend::DeviceOptions options;
  bool must_open = false;
  bool complete = false;
  bool recurrences = false;  // differs from another device in these alone
};
const std::vector<DeviceUnderTest>& devices_under_test();

// The reference, the CPU, and every other backend of the build that opens here.
std::vector<std::string> backends_under_test();

}  // namespace kapitsa::test
