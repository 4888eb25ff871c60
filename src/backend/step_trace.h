// The time that each step of a Program takes, summed over passes until it is taken: what
// `bench --trace` shows. Owns the sums and the clock; who runs the steps says when one begins.
// Nothing is allocated between the constructor and take().
#pragma once

#include "backend/backend.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace kapitsa::backend {

// Bytes of weights and states that one run of a step reads (and of states that it writes) from
// memory, at most: rows that choose the same expert share it. Small vectors do not count.
int64_t step_bytes(const plan::Plan& plan, const plan::Op& op, const plan::Pass& pass);

class StepTrace {
public:
  // `plan` is lowered and outlives the trace.
  explicit StepTrace(const plan::Plan& plan);

  void begin_pass(const plan::Pass& pass);
  void begin_step(size_t step);  // ends the one before
  void end_pass();

  // What was summed since the last call, steps in order, those of decode passes first; only steps
  // that ran.
  std::vector<StepTime> take();

private:
  using Clock = std::chrono::steady_clock;
  struct Sum {
    int64_t passes = 0, rows = 0, bytes = 0;
    double seconds = 0.0, best = 0.0;
  };
  void end_step();

  const plan::Plan& plan_;
  std::vector<std::vector<std::array<Sum, 2>>> sums_;  // by routine, step, phase
  const plan::Pass* pass_ = nullptr;
  size_t step_ = 0;
  bool running_ = false;
  Clock::time_point start_;
};

}  // namespace kapitsa::backend
