// A Plan bound to a card: its memory, its steps, and one graph for each row bucket that was
// captured. A pass is one upload of its arrays and then kernels in one stream; nothing waits until
// something is read.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/layout.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/upload.h"

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace kapitsa::backend::cuda {

class CudaProgram final : public Program {
public:
  // `plan` is lowered and valid.
  static Result<std::unique_ptr<CudaProgram>> create(plan::Plan plan, const ProgramLimits& limits,
                                                     std::vector<int32_t> row_buckets);
  ~CudaProgram() override;

  Status run(const plan::Pass& pass) override;
  Status synchronise() override;
  Result<std::span<const float>> read(plan::BufferId buffer, int32_t first_row,
                                      int32_t n_rows) override;
  Status capture(int32_t bucket) override;
  Status clear_state(int32_t state_slot) override;
  Status commit(int32_t state_slot, std::span<const int32_t> tape_rows) override;
  Status copy_slots(std::span<const SlotCopy> copies) override;
  int64_t state_bytes() const override { return state_bytes_; }
  Status save_state(int32_t state_slot, std::span<std::byte> bytes) override;
  Status load_state(int32_t state_slot, std::span<const std::byte> bytes) override;
  const MemoryNeed& memory() const override { return layout_.need; }

private:
  CudaProgram() = default;
  Status allocate();
  Status upload_weights();
  Status upload_tiles(const plan::Weight& weight, const WeightPlace& place, Uploader& uploader);
  Status write_pass(const plan::Pass& pass);
  void bind_pass();
  void launch_steps(int32_t routine);
  Status launch_replays(int32_t routine, const ReplayView& replay);
  // The captured bucket that holds a decode pass of routine 0; nullptr: none.
  cudaGraphExec_t graph_for(const plan::Pass& pass) const;
  Status check_snapshot(int32_t state_slot, size_t n_bytes) const;
  // Calls f(address, bytes) for each recurrent state of the slot, in the plan's order.
  template <typename F>
  Status for_each_state(int32_t state_slot, F f);

  plan::Plan plan_;
  Layout layout_;
  std::vector<int32_t> row_buckets_;
  Stream stream_;
  DeviceBlock buffer_block_, cache_block_, recurrent_block_, weight_block_;
  DeviceBlock raw_block_;  // while weights are loaded
  int64_t raw_bytes_ = 0;
  Context context_;
  int64_t state_bytes_ = 0;
  std::map<int32_t, GraphExec> graphs_;  // by bucket

  // Passes are written to page-locked memory in turn, so that one may be on its way while the next
  // is prepared.
  struct Staged {
    PinnedBlock memory;
    Event sent;
  };
  std::array<Staged, 4> staged_;
  size_t next_staged_ = 0;
  PinnedBlock read_memory_;
  int64_t read_bytes_ = 0;
  std::vector<float> read_ids_;
  int32_t last_rows_ = 0, last_outputs_ = 0;
};

}  // namespace kapitsa::backend::cuda
