// Projections. Threads split the output columns. Plain weights are read where they are; block types
// are decoded to f32, a few rows at a time, into the thread's scratch.
#include "backend/cpu/ops.h"
#include "base/huge_block.h"
#include "weights/codec.h"

#include <algorithm>

namespace kapitsa::backend::cpu {
namespace {

constexpr int64_t kDecodedRows = 4;  // weight rows decoded at a time

std::optional<Plain> plain_type(DType dtype) {
  switch (dtype) {
  case DType::f32: return Plain::f32;
  case DType::f16: return Plain::f16;
  case DType::bf16: return Plain::bf16;
  default: return std::nullopt;
  }
}

int64_t decode_bytes(const plan::Weight& weight) {
  return plain_type(weight.dtype) ? 0 : round_up(kDecodedRows * weight.in * 4, kLine);
}

// Outputs first..end-1 of one matrix (expert) for all rows that `args` names.
void linear_range(const Context& c, const Worker& w, const WeightView& weight, int64_t expert,
                  Range outs, PlainLinear args) {
  const std::byte* matrix = weight.data + expert * weight.out * weight.row_bytes;
  float* out = args.out;
  const float* bias = args.bias;
  const auto type = plain_type(weight.dtype);
  const int64_t step = type ? outs.end - outs.begin : kDecodedRows;
  args.k = weight.in;
  args.type = type.value_or(Plain::f32);
  for (int64_t o = outs.begin; o < outs.end; o += step) {
    args.n_out = std::min(step, outs.end - o);
    args.w = matrix + o * weight.row_bytes;
    args.out = out + o;
    args.bias = bias != nullptr ? bias + o : nullptr;
    if (!type) {
      const auto bytes = static_cast<size_t>(args.n_out * weight.row_bytes);
      auto* decoded = reinterpret_cast<float*>(w.scratch);
      const auto status =
          weights::dequantise(weight.dtype, {static_cast<const std::byte*>(args.w), bytes},
                              {decoded, static_cast<size_t>(args.n_out * weight.in)});
      KAPITSA_DCHECK(status.ok(), "supports() allowed a type that cannot be decoded");
      args.w = decoded;
    }
    c.kernels->linear(args);
  }
}

}  // namespace

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& /*limits*/,
                      const plan::Linear& op) {
  return decode_bytes(plan.weight(op.projection.weight));
}

int64_t scratch_bytes(const plan::Plan& plan, const ProgramLimits& /*limits*/,
                      const plan::ExpertLinear& op) {
  return decode_bytes(plan.weight(op.weight));
}

void run_op(const Context& c, const Worker& w, const plan::Linear& op) {
  const WeightView& weight = c.weight(op.projection.weight);
  linear_range(c, w, weight, 0, partition(weight.out, w.thread, w.n_threads, kDecodedRows),
               {.x = c.f32(op.in),
                .x_stride = c.width(op.in),
                .n_rows = c.n_rows(op.in),
                .bias = c.vector(op.projection.bias),
                .out = c.f32(op.projection.out),
                .out_stride = c.width(op.projection.out)});
}

void run_op(const Context& c, const Worker& w, const plan::ExpertLinear& op) {
  const WeightView& weight = c.weight(op.weight);
  const int64_t top_k = c.width(op.ids);
  const int64_t in_width = c.width(op.in);
  const bool shared = in_width == weight.in;
  const Range outs = partition(weight.out, w.thread, w.n_threads, kDecodedRows);
  const int64_t n_choices = c.n_rows(op.ids) * top_k;
  for (int64_t choice = 0; choice < n_choices; ++choice) {
    const int64_t row = choice / top_k;
    const float* x = c.f32(op.in) + row * in_width;
    if (!shared) x += choice % top_k * weight.in;
    linear_range(c, w, weight, c.i32(op.ids)[choice], outs,
                 {.x = x,
                  .x_stride = weight.in,
                  .n_rows = 1,
                  .out = c.f32(op.out) + choice * weight.out,
                  .out_stride = weight.out});
  }
}

}  // namespace kapitsa::backend::cpu
