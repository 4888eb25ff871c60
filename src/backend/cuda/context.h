// What the launchers of ops see: the Program's device memory by handle, and the size of the pass.
// Nothing here owns memory; program.cpp fills it. Sizes bound the grids; kernels read the exact
// number of rows from the pass, so that a graph captured for a bucket serves every smaller pass.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/tiles.h"
#include "backend/cuda/views.h"
#include "plan/plan.h"

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

namespace kapitsa::backend::cuda {

struct Context {
  const plan::Plan* plan = nullptr;
  ProgramLimits limits;
  std::vector<std::byte*> buffers;
  std::vector<WeightView> weights;  // without data where the weight lies in tiles
  std::vector<TileView> tiles;      // format none where it does not
  std::vector<StateView> states;
  std::vector<std::pair<const plan::Rope*, RopeView>> ropes;  // the different ones of the plan
  std::byte* scratch = nullptr;
  float* partial = nullptr;      // of SkinnyArgs
  int32_t* counters = nullptr;   // likewise
  std::byte* experts = nullptr;  // the list of the last choice of experts
  PassView pass = {};
  cudaStream_t stream = nullptr;

  // Of the pass that is being launched.
  int32_t n_rows = 0, n_outputs = 0, n_views = 0;
  int32_t n_keys = 0;  // no row sees more
  bool prefill = false;
  // The choice whose list lies in `experts`, of what has been launched so far in this pass.
  mutable plan::BufferId listed;

  float* f32(plan::BufferId id) const {
    return id ? reinterpret_cast<float*>(buffers[static_cast<size_t>(id.index)]) : nullptr;
  }
  int32_t* i32(plan::BufferId id) const {
    return reinterpret_cast<int32_t*>(buffers[static_cast<size_t>(id.index)]);
  }
  int64_t width(plan::BufferId id) const { return plan->buffer(id).width; }
  bool is_output(plan::BufferId id) const {
    return plan->buffer(id).rows == plan::RowSpace::output;
  }
  // Rows to launch for, and where the kernel finds how many there are.
  int32_t rows_of(plan::BufferId id) const { return is_output(id) ? n_outputs : n_rows; }
  const int32_t* count_of(plan::BufferId id) const {
    return pass.counts + (is_output(id) ? PassView::kOutputs : PassView::kRows);
  }
  HeadsView heads(const plan::Heads& h) const {
    if (!h.buffer) return {};
    return {f32(h.buffer) + h.offset, width(h.buffer), h.count, h.dim, h.stride};
  }
  const WeightView& weight(plan::WeightId id) const {
    return weights[static_cast<size_t>(id.index)];
  }
  const TileView& tile(plan::WeightId id) const { return tiles[static_cast<size_t>(id.index)]; }
  // A vector's numbers; nullptr for an absent one.
  const float* vector(plan::WeightId id) const {
    return id ? reinterpret_cast<const float*>(weight(id).data) : nullptr;
  }
  NormView norm(const plan::Norm& norm, int32_t dim) const {
    const bool own = norm.weight && weight(norm.weight).in != dim;
    return {norm.present, vector(norm.weight), own ? dim : 0, norm.eps};
  }
  static bool same_angles(const plan::Rope& a, const plan::Rope& b) {
    return a.magnitude == b.magnitude && a.pairs == b.pairs && a.inv_freq == b.inv_freq;
  }
  RopeView rope(const plan::Rope& wanted) const {
    for (const auto& [known, view] : ropes) {
      if (known == &wanted || same_angles(*known, wanted)) return view;
    }
    return {};
  }
  const StateView& state(plan::StateId id) const { return states[static_cast<size_t>(id.index)]; }
};

}  // namespace kapitsa::backend::cuda
