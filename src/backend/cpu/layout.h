// Where everything of a Program lies, computed before anything is allocated: memory_need() and
// load() share it, so what was announced is what is taken.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "plan/plan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kapitsa::backend::cpu {

// Whether there is a run_op for this op with these operands.
bool supports(const plan::Plan& plan, const plan::Op& op);

struct Layout {
  // Byte offsets by handle; -1 for a weight that is used where it is mapped.
  std::vector<int64_t> buffers;                // in the buffer block
  std::vector<int64_t> kv_states;              // in the cache block; -1 for other kinds
  std::vector<int64_t> recurrent;              // in the recurrent block; -1 for caches
  std::vector<int64_t> state_widths;           // elements of an entry, with padding
  std::vector<bool> by_element;                // by state: keys, which lie in tiles (StateView)
  std::vector<int64_t> head_dims;              // by state, of a cache: elements of a head
  std::vector<int64_t> entry_bytes;            // by state
  std::vector<int64_t> vectors;                // in the weight block
  std::vector<int64_t> panels;                 // in the weight block
  std::vector<int64_t> columns;                // in the weight block
  std::vector<std::optional<Format>> formats;  // by weight; nullopt: multiplied in f32
  std::vector<const plan::Rope*> ropes;        // the different ones of the plan
  std::vector<int64_t> rope_values;            // in the buffer block
  std::vector<const plan::SelectBlocks*> block_ropes;  // one for each BlockRope
  std::vector<int64_t> block_rope_values;              // in the buffer block
  int64_t scratch = 0;                                 // of thread 0 in the buffer block
  int64_t scratch_bytes = 0;                           // of each thread
  int64_t shared = 0;                                  // of all threads, in the buffer block
  MemoryNeed need;
};

// `plan` is lowered and outlives the layout. `copy_panels`: keep the panels of block-quantised
// weights in memory; otherwise they are made again whenever they are needed, which is slow and
// gives the same bits. Fails where the sizes overflow or a limit is not positive.
Result<Layout> make_layout(const plan::Plan& plan, const ProgramLimits& limits, int n_threads,
                           bool copy_panels);

}  // namespace kapitsa::backend::cpu
