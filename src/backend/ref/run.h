// What the ops of the reference work on: the buffers, weights and states of a Program as doubles,
// and the pass. One overload of run_op for each primitive; the families are in dense.cpp,
// attention.cpp, recurrent.cpp, chunked.cpp, experts.cpp and special.cpp. Operands are valid: the
// plan passed validate() and the pass check_pass().
#pragma once

#include "backend/backend.h"

#include <cstdint>
#include <span>
#include <vector>

namespace kapitsa::backend::ref {

// A buffer: (max rows, width). `values` for f32, `ids` for i32.
struct BufferData {
  int64_t width = 0;
  std::vector<double> values;
  std::vector<int32_t> ids;
};

// A state: (entries, width), whatever its kind.
struct StateData {
  int64_t width = 0;
  DType dtype = DType::f32;
  std::vector<double> values;

  std::span<double> entry(int32_t index) {
    return std::span(values).subspan(static_cast<size_t>(index * width),
                                     static_cast<size_t>(width));
  }
};

struct Run {
  const plan::Plan& plan;
  const plan::Pass& pass;
  int32_t page_tokens;
  std::vector<BufferData>& buffers;
  std::vector<StateData>& states;
  bool chunked = false;  // prompts go through recurrences in chunks of the grid

  int32_t n_rows(plan::BufferId id) const {
    return plan.buffer(id).rows == plan::RowSpace::output
               ? static_cast<int32_t>(pass.outputs.size())
               : pass.n_rows();
  }
  int64_t width(plan::BufferId id) const { return plan.buffer(id).width; }
  std::span<double> row(plan::BufferId id, int32_t row) const {
    BufferData& data = buffers[static_cast<size_t>(id.index)];
    return std::span(data.values)
        .subspan(static_cast<size_t>(row * data.width), static_cast<size_t>(data.width));
  }
  std::span<int32_t> ids(plan::BufferId id, int32_t row) const {
    BufferData& data = buffers[static_cast<size_t>(id.index)];
    return std::span(data.ids).subspan(static_cast<size_t>(row * data.width),
                                       static_cast<size_t>(data.width));
  }
  std::span<double> head(const plan::Heads& heads, int32_t row_index, int32_t h) const {
    return row(heads.buffer, row_index)
        .subspan(static_cast<size_t>(heads.offset + h * heads.stride),
                 static_cast<size_t>(heads.dim));
  }
  StateData& state(plan::StateId id) const { return states[static_cast<size_t>(id.index)]; }
  const plan::SequenceView& view(int32_t row_index) const {
    return pass.views[static_cast<size_t>(pass.sequences[static_cast<size_t>(row_index)])];
  }
};

// Row `out` of expert `expert` of a weight, dequantised.
std::vector<double> weight_row(const plan::Weight& weight, int64_t expert, int64_t out);
// A (1, 1, n) weight; `n` copies of `otherwise` where it is absent.
std::vector<double> vector_or(const plan::Plan& plan, plan::WeightId id, int64_t n,
                              double otherwise);

double dot(std::span<const double> a, std::span<const double> b);
// Indexes of the n largest values, best first, ties to the lower index, NaN last.
std::vector<int32_t> best_first(std::span<const double> values, int64_t n);
double activate(plan::Activation function, double x);
// Norm of one head in place; `weight` is empty (weightless) or as long as x.
void normalise(std::span<double> x, std::span<const double> weight, double eps);
// The part of a norm's weight that belongs to head h of `count`.
std::vector<double> norm_weight(const plan::Plan& plan, const plan::Norm& norm, int32_t dim,
                                int32_t h);
void rotate(std::span<double> x, const plan::Rope& rope, int32_t position);

void run_op(Run& run, const plan::EmbedRows& op);
void run_op(Run& run, const plan::RmsNorm& op);
void run_op(Run& run, const plan::L2Norm& op);
void run_op(Run& run, const plan::Linear& op);
void run_op(Run& run, const plan::Add& op);
void run_op(Run& run, const plan::Mul& op);
void run_op(Run& run, const plan::Affine& op);
void run_op(Run& run, const plan::Activate& op);
void run_op(Run& run, const plan::ScaleColumns& op);
void run_op(Run& run, const plan::SoftplusBias& op);
void run_op(Run& run, const plan::Softcap& op);
void run_op(Run& run, const plan::Copy& op);
void run_op(Run& run, const plan::Repeat& op);
void run_op(Run& run, const plan::SumGroups& op);
void run_op(Run& run, const plan::GroupDot& op);
void run_op(Run& run, const plan::Softmax& op);
void run_op(Run& run, const plan::ApplyRope& op);
void run_op(Run& run, const plan::CacheAppend& op);
void run_op(Run& run, const plan::Attend& op);
void run_op(Run& run, const plan::SelectBlocks& op);
void run_op(Run& run, const plan::CausalConv& op);
void run_op(Run& run, const plan::DeltaRule& op);
void run_op(Run& run, const plan::SsmScan& op);
void run_op(Run& run, const plan::SelectExperts& op);
void run_op(Run& run, const plan::ExpertLinear& op);
void run_op(Run& run, const plan::CombineExperts& op);
void run_op(Run& run, const plan::NgramRows& op);
void run_op(Run& run, const plan::SoftEmbed& op);
void run_op(Run& run, const plan::GatherOutputs& op);
void run_op(Run& run, const plan::TopLogits& op);

// The rows of a prefill pass, chunk by chunk.
void run_chunks(Run& run, const plan::DeltaRule& op);
void run_chunks(Run& run, const plan::SsmScan& op);

// Commits one tape row of the op's memory to a state slot; false for ops without a memory.
bool replay_op(const plan::Plan& plan, std::vector<StateData>& states, const plan::Op& op,
               int32_t tape_row, int32_t state_slot);

}  // namespace kapitsa::backend::ref
