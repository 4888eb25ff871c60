// Whether the engine computes what it should on this machine: its backends, their instruction sets,
// and a self-test of their kernels against the reference. For `doctor`, and for bug reports.
#pragma once

#include "base/result.h"

#include <string>
#include <vector>

namespace kapitsa {

// One way to run models here: a backend, with an instruction set where it has several.
struct Variant {
  std::string backend;
  std::string isa;          // "" where there is no choice
  std::string description;  // the chip and the kernels, as the device calls itself
  bool chosen = false;      // what runs without options
};

struct KernelCheck {
  std::string op;  // "linear q4_1"
  Variant variant;
  bool fast = false;     // the arithmetic that runs by default; false: f32 throughout
  bool present = false;  // the backend has this kernel
  double error = 0.0;    // largest, relative to the largest value of the row
  double tolerance = 0.0;
  std::string problem;  // why it could not run
  bool passed() const { return problem.empty() && error <= tolerance; }
};

struct Diagnosis {
  std::vector<Variant> variants;
  std::vector<std::string> absent;    // backends of this build without a device here, and why
  std::vector<std::string> problems;  // backends that do not open
  std::vector<KernelCheck> checks;    // by op, then variant
  double seconds = 0.0;
};

// Takes seconds. `threads`: as in LoadOptions.
Diagnosis diagnose(int threads);

}  // namespace kapitsa
