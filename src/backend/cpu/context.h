// What a step sees while a pass runs: the Program's memory by handle, the pass, and its own thread.
// Nothing here owns memory; program.cpp fills it. The memory of a buffer is rows of `width`
// elements without padding, so that read() can hand it out.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "base/thread_pool.h"
#include "plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kapitsa::backend::cpu {

struct WeightView {
  const plan::Weight* source = nullptr;
  int64_t experts = 1, out = 1, in = 0;
  const float* vector = nullptr;    // (in), where experts = out = 1
  const float* columns = nullptr;   // (in, out): the taps of a convolution
  std::optional<Format> format;     // has panels: the integer kernels multiply with it
  const uint8_t* panels = nullptr;  // nullptr: packed panel by panel when they are needed

  // Multiplies all values of an expert.
  float scale(int64_t expert) const {
    if (source->scale.empty()) return 1.0F;
    return source->scale[source->scale.size() == 1 ? 0 : static_cast<size_t>(expert)];
  }
};

inline constexpr int kExactPlanes = 2;   // of activations in whole numbers that are nearly exact
inline constexpr int32_t kKeyTile = 16;  // entries that lie together

// Entries one after another; or, `by_element`, in tiles of 16: element e of entry s is number
// (s / 16 * width + e) * 16 + s % 16, so that 16 keys are read as one vector. Entries of q8_0 are
// in cache.h; their tiles lie head by head.
struct StateView {
  std::byte* data = nullptr;
  bool by_element = false;
  DType dtype = DType::f32;
  int64_t width = 0;     // elements of an entry
  int64_t head_dim = 0;  // elements that attention reads as one head
  int64_t entry_bytes = 0;
  int64_t n_tiles = 0;
};

// The rows of one sequence in the pass. `dense`: each follows the one before, from the committed
// end on, and lies in the slot that the page table names.
struct SequenceRows {
  int32_t begin = 0, end = 0;
  bool dense = true;
};

// One of the threads that run a step, with memory of its own that lasts for the step.
struct Worker {
  int thread = 0;
  int n_threads = 1;
  std::byte* scratch = nullptr;
  std::byte* shared = nullptr;  // one for all threads; a step that uses it meets before and after
};

// cos and sin of every angle of a rope for the rows of the pass: (rows, pairs, 2), magnitude
// included.
struct RopeTable {
  const plan::Rope* rope = nullptr;
  float* values = nullptr;
};

// Angles at the first token of every block of a sparse attention (ops_select.cpp).
struct BlockRope {
  const plan::SelectBlocks* op = nullptr;  // one of those that use it
  int64_t n_pairs = 0;
  float* values = nullptr;
};

// Base address and strides of heads in a buffer.
struct HeadRows {
  float* base = nullptr;
  int64_t row_stride = 0, head_stride = 0;
  float* at(int64_t row, int64_t head) const {
    return base + row * row_stride + head * head_stride;
  }
};

struct Context {
  const plan::Plan* plan = nullptr;
  const Kernels* kernels = nullptr;
  ThreadPool* pool = nullptr;
  ProgramLimits limits;
  std::vector<std::byte*> buffers;
  std::vector<WeightView> weights;
  std::vector<StateView> states;
  std::vector<RopeTable> ropes;
  std::vector<BlockRope> block_ropes;

  // Of the running pass.
  const plan::Pass* pass = nullptr;
  std::vector<SequenceRows> sequence_rows;  // by view

  float* f32(plan::BufferId id) const {
    return reinterpret_cast<float*>(buffers[static_cast<size_t>(id.index)]);
  }
  int32_t* i32(plan::BufferId id) const {
    return reinterpret_cast<int32_t*>(buffers[static_cast<size_t>(id.index)]);
  }
  int64_t width(plan::BufferId id) const { return plan->buffer(id).width; }
  int64_t n_rows(plan::BufferId id) const {
    return plan->buffer(id).rows == plan::RowSpace::pass
               ? pass->n_rows()
               : static_cast<int64_t>(pass->outputs.size());
  }
  HeadRows heads(const plan::Heads& h) const {
    return {f32(h.buffer) + h.offset, width(h.buffer), h.stride};
  }
  const WeightView& weight(plan::WeightId id) const {
    return weights[static_cast<size_t>(id.index)];
  }
  // nullptr for an absent one.
  const float* vector(plan::WeightId id) const { return id ? weight(id).vector : nullptr; }
  const float* rope_values(const plan::Rope& rope) const {
    for (const RopeTable& table : ropes) {
      if (table.rope == &rope || same_angles(*table.rope, rope)) return table.values;
    }
    return nullptr;
  }
  const BlockRope* block_rope(const plan::SelectBlocks& op) const {
    for (const BlockRope& table : block_ropes) {
      if (same_blocks(*table.op, op)) return &table;
    }
    return nullptr;
  }
  static bool same_blocks(const plan::SelectBlocks& a, const plan::SelectBlocks& b) {
    return a.ratio == b.ratio && same_angles(a.rope, b.rope);
  }
  static bool same_angles(const plan::Rope& a, const plan::Rope& b) {
    return a.magnitude == b.magnitude && a.inv_freq == b.inv_freq;
  }
  // Planes of activations: near-exact ones to decode with, one byte each for a prompt.
  int planes() const { return pass->phase == plan::Phase::decode ? kExactPlanes : 1; }
  const StateView& state(plan::StateId id) const { return states[static_cast<size_t>(id.index)]; }
};

}  // namespace kapitsa::backend::cpu
