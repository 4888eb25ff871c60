// A plain decoder (llama or qwen3 shaped) recorded as a Plan, with random weights or those of a
// GGUF file: what backend tests and benchmarks run when they need a whole model. It is not the
// product's model code and reads none of the optional features of a checkpoint.
#pragma once

#include "base/result.h"
#include "plan/plan.h"
#include "weights/checkpoint.h"

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace kapitsa::test {

struct DecoderShape {
  int64_t n_layers = 2;
  int64_t hidden = 64;
  int32_t n_heads = 4;
  int32_t n_kv_heads = 2;
  int32_t head_dim = 32;
  int64_t ff = 96;
  int64_t vocab = 100;
  float eps = 1e-5F;
  double rope_theta = 10000.0;
  plan::RopePairs rope_pairs = plan::RopePairs::adjacent;
  bool qk_norm = false;  // qwen3
  int32_t window = 0;
  DType cache = DType::f16;
  int64_t top_logits = 0;  // > 0: the head also keeps that many best logits
};

// Owns the weight data that its plan points to, unless the data lives in a Checkpoint.
struct Decoder {
  DecoderShape shape;
  plan::Plan plan;
  plan::BufferId hidden;  // readable: the residual stream after the last layer
  std::deque<std::vector<std::byte>> data;
};

// Matrices of type `matrices` (the embedding, which is also the head, of type `embedding`).
Decoder random_decoder(const DecoderShape& shape, DType matrices, DType embedding, uint32_t seed);

// The trunk of a llama or qwen3 GGUF file; the checkpoint must outlive the decoder.
Result<Decoder> read_decoder(const weights::Checkpoint& checkpoint);

// Random numbers in the blocks of a type, row after row: about normal, of this standard deviation.
std::vector<std::byte> random_blocks(DType dtype, int64_t n, float deviation, std::mt19937& random);

}  // namespace kapitsa::test
