#include "backend/cpu/matmul.h"

#include "backend/cpu/ops.h"
#include "backend/cpu/panels.h"
#include "backend/weight_row.h"

#include <algorithm>
#include <cstring>

namespace kapitsa::backend::cpu {
namespace {

constexpr int64_t kDecodedRows = 4;    // weight rows decoded to f32 at a time
constexpr int64_t kSmallInput = 8192;  // elements that every thread prepares for itself
// Activations that stay in the second-level cache while weights go by.
constexpr int64_t kChunkBytes = int64_t{384} << 10;

std::optional<Plain> plain_type(const plan::Weight& weight) {
  if (!weight.scale.empty()) return std::nullopt;
  switch (weight.dtype) {
  case DType::f32: return Plain::f32;
  case DType::f16: return Plain::f16;
  case DType::bf16: return Plain::bf16;
  default: return std::nullopt;
  }
}

// The pointers that a kernel call needs, at the end of the thread's scratch.
struct Pointers {
  const uint8_t** records;
  float** out;
  std::byte* rest;  // a decoded or packed part of the weight
};
Pointers pointers_of(const Context& c, const Worker& w) {
  const int64_t bytes = round_up(c.limits.max_rows * int64_t{sizeof(void*)}, kLine);
  std::byte* at = w.scratch + kThreadInputBytes;
  return {reinterpret_cast<const uint8_t**>(at), reinterpret_cast<float**>(at + bytes),
          at + 2 * bytes};
}

// Panels of the range for all rows that `l` names, in chunks of rows that stay in the cache.
void run_panels(const Context& c, const WeightView& weight, int64_t expert, PackedLinear l,
                std::byte* scratch) {
  const int64_t one_panel = panel_bytes(l.format, l.k);
  const int64_t chunk = std::max<int64_t>(16, kChunkBytes / activation_layout(l.k).bytes / 16 * 16);
  const int64_t n_rows = l.n_rows;
  const uint8_t* const* x = l.x;
  float* const* out = l.out;
  if (weight.panels != nullptr) {
    l.panels = weight.panels + expert * n_panels(*weight.source) * one_panel;
    for (int64_t r = 0; r < n_rows; r += chunk) {
      l.n_rows = std::min(chunk, n_rows - r);
      l.x = x + r;
      l.out = out + r;
      c.kernels->packed_linear(l);
    }
    return;
  }
  const int64_t end = l.end_tile;
  for (int64_t tile = l.first_tile; tile < end; ++tile) {
    auto* panel = reinterpret_cast<uint8_t*>(scratch);
    pack_panel(*weight.source, l.format, expert, tile, panel);
    l.panels = panel;
    l.panels_tile = tile;
    l.first_tile = tile;
    l.end_tile = tile + 1;
    c.kernels->packed_linear(l);
  }
}

void run_plain(const Context& c, const WeightView& weight, int64_t expert, Range outs,
               PlainLinear args, float* decoded) {
  const auto type = plain_type(*weight.source);
  const std::byte* matrix = plan::matrix_bytes(*weight.source, expert).data();
  const int64_t row_bytes = plan::row_bytes(*weight.source);
  float* out = args.out;
  const float* bias = args.bias;
  const int64_t step = type ? outs.end - outs.begin : kDecodedRows;
  args.k = weight.in;
  args.type = type.value_or(Plain::f32);
  for (int64_t o = outs.begin; o < outs.end; o += step) {
    args.n_out = std::min(step, outs.end - o);
    args.w = matrix + o * row_bytes;
    args.out = out + o;
    args.bias = bias != nullptr ? bias + o : nullptr;
    if (!type) {
      for (int64_t i = 0; i < args.n_out; ++i)
        decode_row(*weight.source, expert, o + i,
                   {decoded + i * weight.in, static_cast<size_t>(weight.in)});
      args.w = decoded;
    }
    c.kernels->linear(args);
  }
}

}  // namespace

int64_t input_bytes(int64_t max_rows, int64_t k) {
  return max_rows * (round_up(k * 4, kLine) + activation_layout(k).bytes);
}

int64_t project_bytes(const ProgramLimits& limits, const plan::Weight& weight) {
  const int64_t pointers = 2 * round_up(limits.max_rows * int64_t{sizeof(void*)}, kLine);
  const auto format = panel_format(weight);
  const int64_t panel = format ? panel_bytes(*format, weight.in) : 0;
  return kThreadInputBytes + pointers +
         std::max(panel, round_up(kDecodedRows * weight.in * 4, kLine));
}

Input prepare_input(const Context& c, const Worker& w, const Source& source,
                    std::span<const plan::WeightId> weights, std::byte* shared) {
  const auto packed = [&](plan::WeightId id) { return uses_panels(c, id); };
  const bool needs_records = std::any_of(weights.begin(), weights.end(), packed);
  const bool needs_plain = !std::all_of(weights.begin(), weights.end(), packed);
  const int64_t record_bytes = activation_layout(source.k).bytes;
  const int64_t plain_bytes = round_up(source.k * 4, kLine);
  const bool alone = source.n_rows * source.k <= kSmallInput &&
                     source.n_rows * (record_bytes + plain_bytes) <= kThreadInputBytes;
  std::byte* to = alone ? w.scratch : shared;
  auto* records = reinterpret_cast<uint8_t*>(to);
  auto* plain = reinterpret_cast<float*>(to + source.n_rows * record_bytes);

  Input input = {
      .k = source.k, .n_rows = source.n_rows, .planes = source.exact ? kExactPlanes : c.planes()};
  if (needs_records) input.records = records;
  const bool moves = source.norm.present || !source.rows.empty();
  if (needs_plain) {
    input.plain = moves ? plain : source.data;
    input.stride = moves ? plain_bytes / 4 : source.stride;
  }
  if (!needs_records && !moves) return input;
  const Range rows =
      alone ? Range{0, source.n_rows} : partition(source.n_rows, w.thread, w.n_threads);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t from = source.rows.empty() ? r : source.rows[static_cast<size_t>(r)];
    const float* x = source.data + from * source.stride;
    float* y = plain + r * (plain_bytes / 4);
    if (source.norm.present) {
      normalise(c, x, source.k, source.norm.eps, c.vector(source.norm.weight), y);
      x = y;
    } else if (needs_plain && moves) {
      std::memcpy(y, x, static_cast<size_t>(source.k) * sizeof(float));
    }
    if (needs_records)
      c.kernels->quantise(x, source.k, 0, source.k, input.planes, records + r * record_bytes);
  }
  if (!alone) c.pool->barrier();
  return input;
}

void project(const Context& c, const Worker& w, const Input& input, const Product& product,
             Range outs, const Pick& pick) {
  if (outs.begin >= outs.end) return;
  const WeightView& weight = c.weight(product.weight);
  const Pointers p = pointers_of(c, w);
  const bool all = pick.in.empty();
  const int64_t n = all ? input.n_rows : std::ssize(pick.in);
  const auto row_in = [&](int64_t i) { return all ? i : pick.in[static_cast<size_t>(i)]; };
  const auto row_out = [&](int64_t i) {
    return product.out + (all ? i : pick.out[static_cast<size_t>(i)]) * product.out_stride;
  };
  if (!weight.format) {
    const int64_t step = all ? n : 1;  // picked rows have no common stride
    for (int64_t i = 0; i < n; i += step) {
      run_plain(c, weight, product.expert, outs,
                {.x = input.plain + row_in(i) * input.stride,
                 .x_stride = input.stride,
                 .n_rows = step,
                 .bias = product.bias,
                 .out = row_out(i),
                 .out_stride = product.out_stride,
                 .accumulate = product.accumulate},
                reinterpret_cast<float*>(p.rest));
    }
    return;
  }
  const int64_t record_bytes = activation_layout(input.k).bytes;
  for (int64_t i = 0; i < n; ++i) {
    p.records[i] = input.records + row_in(i) * record_bytes;
    p.out[i] = row_out(i);
  }
  run_panels(c, weight, product.expert,
             {.format = *weight.format,
              .n_out = std::min(outs.end, weight.out),
              .k = input.k,
              .first_tile = outs.begin / kPanelRows,
              .end_tile = (outs.end + kPanelRows - 1) / kPanelRows,
              .x = p.records,
              .planes = input.planes,
              .n_rows = n,
              .scale = weight.scale(product.expert),
              .bias = product.bias,
              .out = p.out,
              .accumulate = product.accumulate},
             p.rest);
}

void project_share(const Context& c, const Worker& w, const Input& input,
                   std::span<const Product> products) {
  // One line of panels over all products, cut evenly.
  int64_t n_tiles = 0;
  for (const Product& product : products)
    n_tiles += n_panels(*c.weight(product.weight).source);
  const Range own = partition(n_tiles, w.thread, w.n_threads);
  int64_t first = 0;
  for (const Product& product : products) {
    const int64_t n_out = c.weight(product.weight).out;
    const int64_t tiles = n_panels(*c.weight(product.weight).source);
    const int64_t begin = std::clamp<int64_t>(own.begin - first, 0, tiles);
    const int64_t end = std::clamp<int64_t>(own.end - first, 0, tiles);
    project(c, w, input, product, {begin * kPanelRows, std::min(end * kPanelRows, n_out)});
    first += tiles;
  }
}

}  // namespace kapitsa::backend::cpu
