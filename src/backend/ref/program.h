// A Plan bound to the reference device. Buffers that the engine may not read are filled with NaN
// before every pass, and cache slots start as NaN, so that a step that reads what nothing wrote
// shows in the result.
#pragma once

#include "backend/ref/run.h"

#include <memory>

namespace kapitsa::backend::ref {

class RefProgram final : public Program {
public:
  // `plan` is lowered and valid.
  RefProgram(plan::Plan plan, const ProgramLimits& limits, const MemoryNeed& memory, bool chunked);

  Status run(const plan::Pass& pass) override;
  Status synchronise() override { return {}; }
  Result<std::span<const float>> read(plan::BufferId buffer, int32_t first_row,
                                      int32_t n_rows) override;
  Status write(plan::BufferId buffer, int32_t first_row, std::span<const float> values) override;
  Status capture(int32_t /*bucket*/) override { return {}; }
  Status clear_state(int32_t state_slot) override;
  Status commit(int32_t state_slot, std::span<const int32_t> tape_rows) override;
  Status copy_slots(std::span<const SlotCopy> copies) override;
  int64_t state_bytes() const override;
  Status save_state(int32_t state_slot, std::span<std::byte> bytes) override;
  Status load_state(int32_t state_slot, std::span<const std::byte> bytes) override;
  const MemoryNeed& memory() const override { return memory_; }

private:
  void replay(int32_t routine, int32_t state_slot, std::span<const int32_t> tape_rows);
  // Calls f with the bytes of each recurrent state of the slot, in the plan's order.
  template <typename F>
  void for_each_state(int32_t state_slot, F f);

  plan::Plan plan_;
  ProgramLimits limits_;
  MemoryNeed memory_;
  bool chunked_;
  std::vector<BufferData> buffers_;
  std::vector<StateData> states_;
  std::vector<float> staging_;  // what read() returned last
};

// Entries of a state of this kind.
int64_t state_entries(const ProgramLimits& limits, plan::StateKind kind);
// Rows of a buffer of this row space.
int64_t buffer_rows(const ProgramLimits& limits, plan::RowSpace rows);

}  // namespace kapitsa::backend::ref
