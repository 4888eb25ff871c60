// Where everything of a Program lies on the card, computed before anything is allocated:
// memory_need() and load() share it, so what was announced is what is taken.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/tiles.h"
#include "plan/plan.h"

#include <cstdint>
#include <vector>

namespace kapitsa::backend::cuda {

// Whether there is a kernel for this op with these operands.
bool supports(const plan::Plan& plan, const plan::Op& op, ComputeMode compute);

// The arrays of views.h's PassView in one run of i32, which a pass uploads up to what it uses.
// `capacity` counts i32; offsets are indexes.
struct PassLayout {
  int64_t tokens = 0, positions = 0, sequences = 0, slots = 0, parents = 0, depth = 0;
  int64_t history = 0, outputs = 0;
  int64_t first_row = 0, end_row = 0, committed = 0, state_slot = 0;
  int64_t first_page = 0, first_replay = 0, n_replay = 0;
  int64_t lists = 0;  // replay rows, then pages
  int64_t capacity = 0;
  int32_t max_views = 0;
};

// Byte offsets in the weight block; -1: absent.
struct WeightPlace {
  bool plain = false;  // decoded to f32
  TileFormat format = TileFormat::none;
  int64_t data = -1, scales = -1, biases = -1, factor = -1;
};

struct Layout {
  std::vector<int64_t> buffers;          // in the buffer block
  std::vector<int64_t> states;           // in the cache block or the recurrent block
  std::vector<WeightPlace> weights;      // in the weight block
  std::vector<const plan::Rope*> ropes;  // the different ones of the plan
  std::vector<int64_t> rope_values;      // in the buffer block
  PassLayout pass;
  int64_t pass_data = 0;  // in the buffer block
  int64_t replay_data = 0;
  int64_t scratch = 0, partial = 0, counters = 0, experts = 0;
  MemoryNeed need;
};

// `plan` is lowered and outlives the layout. Fails where a limit is out of range.
Result<Layout> make_layout(const plan::Plan& plan, const ProgramLimits& limits);

int64_t entries_of(const ProgramLimits& limits, plan::StateKind kind);

}  // namespace kapitsa::backend::cuda
