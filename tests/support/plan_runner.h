// Runs a Plan over token sequences on any Device, as the engine would: page tables, slots, state
// slots, trees, replays. For kernel cases and for the invariant tests of architectures. Pages are
// scattered on purpose. Every row of a pass is an output row.
#pragma once

#include "backend/backend.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace kapitsa::test {

struct RunnerOptions {
  int32_t n_sequences = 2;
  int32_t max_tokens = 256;  // of one sequence
  int32_t max_rows = 256;    // of one pass
  int32_t routine = 0;
  backend::ComputeMode compute = backend::ComputeMode::f32;
  bool graphs = false;  // capture every row bucket of the device
  std::function<void(std::span<const std::byte>)> copied = {};  // ProgramLimits::copied
};

// Rows of one sequence in a decode pass. parents index `tokens`, -1 is the committed state; empty
// means a chain.
struct Rows {
  int32_t sequence = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;
};

class PlanRunner {
public:
  static Result<PlanRunner> open(backend::Device& device, const plan::Plan& plan,
                                 const RunnerOptions& options = {});

  // One prefill pass of one sequence from its committed end, which must be on the grid.
  Status prefill(int32_t sequence, std::span<const int32_t> tokens);
  // One decode pass; nothing is committed.
  Status decode(std::span<const Rows> rows);
  Status decode(std::initializer_list<Rows> rows) { return decode(std::span(rows)); }
  // Commits a path of the sequence's rows of the last decode pass. The recurrent part is replayed
  // at the start of the sequence's next pass, or now with `flush`.
  Status accept(int32_t sequence, const std::vector<int32_t>& path, bool flush = false);

  // The routine of the passes from now on.
  void set_routine(int32_t routine) { options_.routine = routine; }

  // All rows of a readable buffer after the last pass, (rows, width).
  Result<std::vector<float>> read(plan::BufferId buffer);
  // Logits of one row of the last pass.
  Result<std::vector<float>> logits(int32_t row);

  int32_t n_rows() const { return static_cast<int32_t>(last_tokens_.size()); }
  int32_t committed(int32_t sequence) const;
  backend::Program& program() { return *program_; }

private:
  struct Sequence {
    std::vector<int32_t> pages;
    int32_t spare_page = 0;  // slots of rows that share a position with another row
    std::vector<int32_t> tokens;
    std::vector<int32_t> replay;
    // Of the last decode pass.
    std::vector<int32_t> rows, row_tokens, row_slots;
  };
  struct Draft;  // the vectors behind a Pass

  PlanRunner() = default;
  int32_t slot(const Sequence& sequence, int32_t position) const;
  void append_rows(Draft& draft, const Rows& rows);
  Status run(plan::Phase phase, std::span<const Rows> rows);

  std::unique_ptr<backend::Program> program_;
  std::vector<int64_t> widths_;  // of the plan's buffers
  plan::BufferId logits_;
  int32_t n_history_ = 0;
  RunnerOptions options_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> last_tokens_;
};

}  // namespace kapitsa::test
