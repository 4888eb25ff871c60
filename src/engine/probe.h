// One sequence on one program, pass by pass, every row an output row: for checks that look at
// numbers (doctor, verify). Requests run in device_thread.h.
#pragma once

#include "backend/backend.h"

#include <memory>
#include <span>
#include <vector>

namespace kapitsa::engine {

struct ProbeOptions {
  int32_t max_rows = plan::kGrid;  // of one pass
  int32_t max_tokens = plan::kGrid;
  backend::ComputeMode compute = backend::ComputeMode::fast;
};

class Probe {
public:
  // `plan` and its weights must outlive the probe where the program uses them in place.
  static Result<Probe> open(backend::Device& device, const plan::Plan& plan,
                            const ProbeOptions& options);

  // Runs the tokens that follow those so far. Prefill must start on the grid; a decode pass, whose
  // rows are not committed, is the last one.
  Status run(plan::Phase phase, std::span<const int32_t> tokens);

  // All rows of a readable buffer after the last pass, until the next.
  Result<std::span<const float>> read(plan::BufferId buffer);

private:
  Probe() = default;

  std::unique_ptr<backend::Program> program_;
  std::vector<int32_t> pages_;
  std::vector<int32_t> tokens_;  // of all passes
  int32_t n_history_ = 0;
  int32_t n_rows_ = 0;  // of the last pass
};

// Largest difference relative to the largest expected value of the same row, over rows of `width`
// values; infinite where one has a NaN that the other has not.
double relative_difference(std::span<const float> expected, std::span<const float> found,
                           int64_t width);

}  // namespace kapitsa::engine
