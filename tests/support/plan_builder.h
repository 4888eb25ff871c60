// Builds small Plans with random weights and random inputs, for kernel cases and plan tests. Inputs
// come from an embedding table, so that the token of a row chooses its values. Parts of a row that
// no head covers, and outputs before the op, hold NaN: an op that reads or forgets them shows.
#pragma once

#include "plan/plan.h"

#include <cstddef>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace kapitsa::test {

inline constexpr int32_t kVocab = 131;  // tokens 0..130

class Random {
public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24F;
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(engine_() % static_cast<uint64_t>(n)); }

private:
  std::mt19937_64 engine_;  // its numbers are fixed by the standard
};

class PlanBuilder {
public:
  explicit PlanBuilder(uint64_t seed);
  PlanBuilder(const PlanBuilder&) = delete;  // weights point into storage_
  PlanBuilder& operator=(const PlanBuilder&) = delete;

  plan::Plan plan;
  Random random;

  // (rows, width) with values in [low, high].
  plan::BufferId input(int64_t width, float low = -1.0F, float high = 1.0F);
  // (rows, width), row r is values[token[r]]; `values` is (n, width), for n tokens.
  plan::BufferId input_of(std::span<const float> values, int64_t width);
  // Heads with `gap` elements of NaN around and between them.
  plan::Heads input_heads(int32_t count, int32_t dim, int32_t gap = 0, float low = -1.0F,
                          float high = 1.0F);
  // Readable; NaN until the op writes it.
  plan::BufferId output(int64_t width, DType dtype = DType::f32,
                        plan::RowSpace rows = plan::RowSpace::pass);
  plan::Heads output_heads(int32_t count, int32_t dim, int32_t gap = 0);
  // Not readable, without values.
  plan::BufferId buffer(int64_t width, DType dtype = DType::f32);

  // Random values about 1 / sqrt(in) in size; quantised types get random valid blocks.
  plan::WeightId matrix(int64_t out, int64_t in, DType dtype = DType::f32, int64_t experts = 1);
  // MLX groups; `scale_dtype` counts for affine only.
  plan::WeightId grouped(int64_t out, int64_t in, GroupQuant group, DType scale_dtype,
                         int64_t experts = 1);
  // The groups of nvfp4, with the codes and scales of each expert in memory of their own.
  plan::WeightId nvfp4_apart(int64_t out, int64_t in, int64_t experts);
  // The same matrix with each expert in memory of its own, times a factor for each.
  plan::WeightId apart_and_scaled(int64_t out, int64_t in, DType dtype, int64_t experts);
  plan::WeightId vector(int64_t n, float low = 0.5F, float high = 1.5F);
  plan::WeightId weight_of(std::span<const float> values, int64_t out, int64_t in,
                           int64_t experts = 1);

  plan::StateId cache(int64_t width, DType dtype = DType::f32);
  plan::Recurrent memory(int64_t state_width, int64_t tape_width);

  // The op under test. Everything else in the plan is plumbing.
  void op(plan::Op tested);
  const std::vector<plan::Op>& tested() const { return tested_; }
  // Readable buffers, in the order they were made.
  const std::vector<plan::BufferId>& outputs() const { return outputs_; }
  // Lets a buffer be read: for ops that change their input in place.
  plan::BufferId readable_input(int64_t width, float low = -1.0F, float high = 1.0F);
  plan::Heads readable_heads(int32_t count, int32_t dim, int32_t gap = 0);

private:
  std::string name(const char* kind);
  plan::BufferId embed(plan::BufferId out, std::span<const float> values, int64_t width);
  std::vector<float> head_table(const plan::Heads& shape, int64_t width, float low, float high);
  std::vector<std::byte> matrix_data(int64_t n, DType dtype, float size);

  std::deque<std::vector<std::byte>> storage_;
  std::vector<plan::Op> tested_;
  std::vector<plan::BufferId> outputs_;
  int names_ = 0;
};

}  // namespace kapitsa::test
