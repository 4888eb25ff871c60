#include "support/plan_builder.h"

#include "base/half.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kapitsa::test {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

void put_f16(std::byte* at, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

// Where a block keeps its f16 factors: the scale of the codes, then the minimum or offset; -1 none.
struct ScaleFields {
  int scale = -1;
  int minimum = -1;
  float code_range = 1.0F;  // largest code times sub-scale, to bring values to size 1
};

ScaleFields scale_fields(DType dtype) {
  switch (dtype) {
  case DType::q4_0: return {0, -1, 8};
  case DType::q4_1: return {0, 2, 16};
  case DType::q5_0: return {0, -1, 16};
  case DType::q5_1: return {0, 2, 32};
  case DType::q8_0: return {0, -1, 128};
  case DType::q2_k: return {80, 82, 3 * 16};
  case DType::q3_k: return {108, -1, 4 * 32};
  case DType::q4_k: return {0, 2, 15 * 64};
  case DType::q5_k: return {0, 2, 31 * 64};
  case DType::q6_k: return {208, -1, 32 * 128};
  case DType::iq1_s: return {0, -1, 9.0F / 8 * 15};
  case DType::iq2_xxs:
  case DType::iq2_xs:
  case DType::iq2_s: return {0, -1, 43.0F / 8 * 31};
  case DType::iq3_xxs: return {0, -1, 62.0F / 4 * 31};
  case DType::iq3_s: return {0, -1, 15 * 31};
  case DType::iq4_nl: return {0, -1, 128};
  case DType::iq4_xs: return {0, -1, 128 * 32};
  default: return {};
  }
}

void fill_block(Random& random, DType dtype, std::span<std::byte> block, float size) {
  for (std::byte& byte : block)
    byte = static_cast<std::byte>(random.below(256));
  if (dtype == DType::mxfp4) {  // E8M0 exponent, about 2^-3
    block[0] = static_cast<std::byte>(122 + random.below(4));
  } else if (dtype == DType::nvfp4) {  // E4M3 scales from 2^-3 to 2^0
    for (size_t s = 0; s < 4; ++s)
      block[s] = static_cast<std::byte>(0x20 + random.below(0x18));
  } else if (dtype == DType::iq1_m) {  // a nibble of the scale in each of four words
    std::byte d[2];
    put_f16(d, size / (9.0F / 8 * 15) * random.uniform(0.5F, 1.5F));
    for (size_t i = 0; i < 4; ++i) {
      const std::byte nibble = (d[i / 2] >> (4 * (i % 2))) & std::byte{15};
      block[49 + 2 * i] = (block[49 + 2 * i] & std::byte{15}) | (nibble << 4);
    }
  } else {
    const ScaleFields fields = scale_fields(dtype);
    const float scale = size / fields.code_range;
    put_f16(block.data() + fields.scale, scale * random.uniform(0.5F, 1.5F));
    if (fields.minimum >= 0) {
      const bool k_type = dtype_info(dtype).block_elements == 256;
      put_f16(block.data() + fields.minimum, k_type ? scale : -0.5F * size);
    }
  }
}

}  // namespace

PlanBuilder::PlanBuilder(uint64_t seed) : random(seed) {
  plan.begin_routine("test");
}

std::string PlanBuilder::name(const char* kind) {
  return std::string(kind) + std::to_string(names_++);
}

plan::BufferId PlanBuilder::embed(plan::BufferId out, std::span<const float> values,
                                  int64_t width) {
  const plan::WeightId table = weight_of(values, std::ssize(values) / width, width);
  plan.add(plan::EmbedRows{table, out}, "input");
  return out;
}

plan::BufferId PlanBuilder::input_of(std::span<const float> values, int64_t width) {
  return embed(buffer(width), values, width);
}

plan::BufferId PlanBuilder::input(int64_t width, float low, float high) {
  const plan::Heads row = {{}, 1, static_cast<int32_t>(width), static_cast<int32_t>(width), 0};
  return embed(buffer(width), head_table(row, width, low, high), width);
}

plan::BufferId PlanBuilder::readable_input(int64_t width, float low, float high) {
  const plan::BufferId out = plan.add_buffer(
      {.name = name("inout"), .dtype = DType::f32, .width = width, .readable = true});
  outputs_.push_back(out);
  const plan::Heads row = {{}, 1, static_cast<int32_t>(width), static_cast<int32_t>(width), 0};
  return embed(out, head_table(row, width, low, high), width);
}

std::vector<float> PlanBuilder::head_table(const plan::Heads& shape, int64_t width, float low,
                                           float high) {
  std::vector<float> table(static_cast<size_t>(kVocab * width), kPoison);
  for (int64_t v = 0; v < kVocab; ++v) {
    for (int32_t h = 0; h < shape.count; ++h) {
      for (int32_t i = 0; i < shape.dim; ++i)
        table[static_cast<size_t>(v * width + shape.offset + h * shape.stride + i)] =
            random.uniform(low, high);
    }
  }
  return table;
}

plan::Heads PlanBuilder::input_heads(int32_t count, int32_t dim, int32_t gap, float low,
                                     float high) {
  const int64_t width = gap + int64_t{count} * (dim + gap);
  plan::Heads heads = {buffer(width), count, dim, dim + gap, gap};
  embed(heads.buffer, head_table(heads, width, low, high), width);
  return heads;
}

plan::Heads PlanBuilder::readable_heads(int32_t count, int32_t dim, int32_t gap) {
  const int64_t width = gap + int64_t{count} * (dim + gap);
  const plan::Heads heads = {
      plan.add_buffer(
          {.name = name("inout"), .dtype = DType::f32, .width = width, .readable = true}),
      count, dim, dim + gap, gap};
  outputs_.push_back(heads.buffer);
  embed(heads.buffer, head_table(heads, width, -1.0F, 1.0F), width);
  return heads;
}

plan::BufferId PlanBuilder::buffer(int64_t width, DType dtype) {
  return plan.add_buffer({.name = name("buffer"), .dtype = dtype, .width = width});
}

plan::BufferId PlanBuilder::output(int64_t width, DType dtype, plan::RowSpace rows) {
  const plan::BufferId out = plan.add_buffer(
      {.name = name("output"), .dtype = dtype, .width = width, .rows = rows, .readable = true});
  outputs_.push_back(out);
  if (dtype == DType::f32 && rows == plan::RowSpace::pass) {
    const std::vector<float> poison(static_cast<size_t>(kVocab * width), kPoison);
    embed(out, poison, width);
  }
  return out;
}

plan::Heads PlanBuilder::output_heads(int32_t count, int32_t dim, int32_t gap) {
  return {output(gap + int64_t{count} * (dim + gap)), count, dim, dim + gap, gap};
}

plan::WeightId PlanBuilder::weight_of(std::span<const float> values, int64_t out, int64_t in,
                                      int64_t experts) {
  const auto bytes = std::as_bytes(values);
  storage_.emplace_back(bytes.begin(), bytes.end());
  return plan.add_weight({name("weight"), DType::f32, experts, out, in, storage_.back()});
}

plan::WeightId PlanBuilder::vector(int64_t n, float low, float high) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(random.uniform(low, high));
  return weight_of(values, 1, n);
}

std::vector<std::byte> PlanBuilder::matrix_data(int64_t n, DType dtype, float size) {
  std::vector<std::byte> data(static_cast<size_t>(dtype_bytes(dtype, n).value()));
  if (is_quantised(dtype)) {
    const auto block = static_cast<size_t>(dtype_info(dtype).block_bytes);
    for (size_t at = 0; at < data.size(); at += block)
      fill_block(random, dtype, std::span(data).subspan(at, block), size);
  } else {
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const float value = random.uniform(-size, size);
      const uint16_t half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      if (dtype == DType::f32) {
        std::memcpy(data.data() + 4 * i, &value, 4);
      } else {
        std::memcpy(data.data() + 2 * i, &half, 2);
      }
    }
  }
  return data;
}

plan::WeightId PlanBuilder::matrix(int64_t out, int64_t in, DType dtype, int64_t experts) {
  storage_.push_back(
      matrix_data(experts * out * in, dtype, 2.0F / std::sqrt(static_cast<float>(in))));
  return plan.add_weight({name("weight"), dtype, experts, out, in, storage_.back()});
}

plan::WeightId PlanBuilder::apart_and_scaled(int64_t out, int64_t in, DType dtype,
                                             int64_t experts) {
  plan::Weight weight = {
      .name = name("weight"), .dtype = dtype, .experts = experts, .out = out, .in = in};
  for (int64_t e = 0; e < experts; ++e) {
    storage_.push_back(matrix_data(out * in, dtype, 2.0F / std::sqrt(static_cast<float>(in))));
    weight.expert_data.push_back(storage_.back());
    weight.scale.push_back(random.uniform(0.5F, 1.5F));
  }
  return plan.add_weight(std::move(weight));
}

plan::WeightId PlanBuilder::grouped(int64_t out, int64_t in, GroupQuant group, DType scale_dtype,
                                    int64_t experts) {
  plan::Weight weight = {.name = name("weight"),
                         .dtype = DType::grouped,
                         .experts = experts,
                         .out = out,
                         .in = in,
                         .group = group,
                         .scale_dtype = scale_dtype};
  const int64_t n_groups = experts * out * in / group.group;
  const float size = 2.0F / std::sqrt(static_cast<float>(in));
  std::vector<std::byte> codes(static_cast<size_t>(experts * out * in * group.bits / 8));
  for (std::byte& code : codes) {
    code = static_cast<std::byte>(random.below(256));
    const bool is_nan =
        group.mode == GroupMode::mxfp8 && (code & std::byte{0x7F}) == std::byte{0x7F};
    if (is_nan) code ^= std::byte{1};
  }
  storage_.push_back(std::move(codes));
  weight.data = storage_.back();
  const auto store = [&](std::vector<float> values) {
    std::vector<std::byte> bytes;
    for (const float value : values) {
      const uint16_t half = scale_dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      const auto add = [&](const auto& number) {
        const auto part = std::as_bytes(std::span(&number, 1));
        bytes.insert(bytes.end(), part.begin(), part.end());
      };
      scale_dtype == DType::f32 ? add(value) : add(half);
    }
    storage_.push_back(std::move(bytes));
    return std::span<const std::byte>(storage_.back());
  };
  if (group.mode == GroupMode::affine) {
    std::vector<float> scales, biases;
    for (int64_t g = 0; g < n_groups; ++g) {
      scales.push_back(size * random.uniform(0.5F, 1.5F) / static_cast<float>(1 << group.bits));
      biases.push_back(-0.5F * size * random.uniform(0.5F, 1.5F));
    }
    weight.scales = store(std::move(scales));
    weight.biases = store(std::move(biases));
    return plan.add_weight(std::move(weight));
  }
  std::vector<std::byte> scales;
  for (int64_t g = 0; g < n_groups; ++g) {
    // E4M3 from 2^-3 to 2^0; E8M0 exponents that bring the largest code to about 1.
    const int32_t lowest = group.mode == GroupMode::mxfp8 ? 115 : 122;
    scales.push_back(static_cast<std::byte>(
        group.mode == GroupMode::nvfp4 ? 0x20 + random.below(0x18) : lowest + random.below(4)));
  }
  storage_.push_back(std::move(scales));
  weight.scales = storage_.back();
  return plan.add_weight(std::move(weight));
}

plan::WeightId PlanBuilder::nvfp4_apart(int64_t out, int64_t in, int64_t experts) {
  const plan::Weight joined =
      plan.weight(grouped(out, in, {4, 16, GroupMode::nvfp4}, DType::bf16, experts));
  plan::Weight weight = joined;
  weight.name = name("weight");
  weight.data = {};
  weight.scales = {};
  for (int64_t e = 0; e < experts; ++e) {
    weight.expert_data.push_back(plan::matrix_bytes(joined, e));
    weight.expert_scales.push_back(plan::matrix_scales(joined, e));
    weight.scale.push_back(random.uniform(0.5F, 1.5F));
  }
  return plan.add_weight(std::move(weight));
}

plan::StateId PlanBuilder::cache(int64_t width, DType dtype) {
  return plan.add_state({name("cache"), plan::StateKind::kv_cache, dtype, width});
}

plan::Recurrent PlanBuilder::memory(int64_t state_width, int64_t tape_width) {
  return {plan.add_state({name("state"), plan::StateKind::recurrent, DType::f32, state_width}),
          plan.add_state({name("tape"), plan::StateKind::tape, DType::f32, tape_width})};
}

void PlanBuilder::op(plan::Op tested) {
  tested_.push_back(tested);
  plan.add(std::move(tested), plan::op_name(tested_.back()));
}

}  // namespace kapitsa::test
