// A Plan bound to the CPU: its memory, its steps and the threads that run them. A pass is one
// fork-join of the pool; inside it the threads meet between steps (ops.h). Nothing is allocated
// after load().
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "backend/cpu/layout.h"
#include "backend/step_trace.h"
#include "base/huge_block.h"

#include <memory>
#include <vector>

namespace kapitsa::backend::cpu {

class CpuProgram final : public Program {
public:
  // `plan` is lowered. The pool is shared with the Device and its other Programs.
  static Result<std::unique_ptr<CpuProgram>> create(plan::Plan plan, const ProgramLimits& limits,
                                                    const Kernels& kernels,
                                                    std::shared_ptr<ThreadPool> pool,
                                                    bool copy_panels);

  Status run(const plan::Pass& pass) override;
  Status synchronise() override { return {}; }
  Result<std::span<const float>> read(plan::BufferId buffer, int32_t first_row,
                                      int32_t n_rows) override;
  Status write(plan::BufferId buffer, int32_t first_row, std::span<const float> values) override;
  Status capture(int32_t /*bucket*/) override { return {}; }
  Status clear_state(int32_t state_slot) override;
  Status commit(int32_t state_slot, std::span<const int32_t> tape_rows) override;
  Status copy_slots(std::span<const SlotCopy> copies) override;
  int64_t state_bytes() const override { return state_bytes_; }
  Status save_state(int32_t state_slot, std::span<std::byte> bytes) override;
  Status load_state(int32_t state_slot, std::span<const std::byte> bytes) override;
  const MemoryNeed& memory() const override { return layout_.need; }
  std::vector<StepTime> take_step_times() override {
    return trace_ ? trace_->take() : std::vector<StepTime>();
  }

private:
  struct BoundStep {
    const plan::Op* op = nullptr;
    bool meet_before = false;  // all threads have finished the step before
  };

  CpuProgram() = default;
  Status allocate();
  Status bind_weight(size_t index);
  void report_copied(const plan::Weight& weight) const;
  void bind_steps();
  void find_sequences(const plan::Pass& pass);
  void run_steps(const std::vector<BoundStep>& steps, int thread, int n_threads);
  Status check_snapshot(int32_t state_slot, size_t n_bytes) const;

  plan::Plan plan_;
  Layout layout_;
  std::shared_ptr<ThreadPool> pool_;
  HugeBlock buffer_block_, cache_block_, recurrent_block_, weight_block_;
  Context context_;
  std::vector<std::vector<BoundStep>> routines_;  // the steps of each
  int64_t state_bytes_ = 0;
  int32_t last_rows_ = 0, last_outputs_ = 0;  // of the last pass, for read()
  std::vector<float> read_ids_;               // what read() gave of an i32 buffer
  std::unique_ptr<StepTrace> trace_;          // written by thread 0
};

}  // namespace kapitsa::backend::cpu
