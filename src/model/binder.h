// Binds the tensors that an architecture declares to those of a checkpoint: looks them up by the
// name of the file's format, checks shape and type, and adds them to the Plan. The first failure is
// kept and every later call is a no-op, so that a model file binds everything and asks once. Bytes
// are used where they lie in the mapped file; only small vectors are converted.
#pragma once

#include "model/arch.h"

#include <string>
#include <vector>

namespace kapitsa::model {

// A tensor's name in GGUF and in Hugging Face checkpoints (MLX keeps the latter). "{}" stands for
// the layer. An empty name: the format does not have the tensor.
struct TensorName {
  std::string_view gguf;
  std::string_view hf;
};

// The matrices of all experts of a layer: one stacked tensor in GGUF and MLX, one tensor per expert
// (the second "{}") in Hugging Face checkpoints.
struct ExpertName {
  std::string_view gguf;
  std::string_view hf;
  std::string_view stacked;
};

class Binder {
public:
  Binder(const weights::Checkpoint& checkpoint, Model& model)
      : checkpoint_(checkpoint), model_(model) {}

  // The layer that "{}" stands for from now on.
  void set_layer(int32_t layer) { layer_ = layer; }

  bool has(const TensorName& name) const;

  // A weight matrix (out, in), plain or quantised.
  plan::WeightId matrix(const TensorName& name, int64_t out, int64_t in);
  // (experts, out, in).
  plan::WeightId experts(const ExpertName& name, int64_t n_experts, int64_t out, int64_t in);

  // A vector of n values as f32: where it lies in the file if it is f32, else converted.
  plan::WeightId vector(const TensorName& name, int64_t n);
  plan::WeightId optional_vector(const TensorName& name, int64_t n);

  // A tensor's values as f32, for model files that compute with them. Empty after a failure.
  std::vector<float> values(const TensorName& name, int64_t n);

  // A weight that the model file computed.
  plan::WeightId derived(std::string name, std::vector<float> values);

  const Status& status() const { return status_; }

private:
  bool is_gguf() const { return checkpoint_.format() == weights::Format::gguf; }
  std::string full_name(std::string_view pattern) const;
  const weights::Tensor* find(const std::string& name, const std::vector<int64_t>& shape);
  plan::WeightId add_matrix(const std::string& name, const std::vector<int64_t>& shape);
  // MLX: the matrix as codes, scales and biases. Returns false when it is not quantised so.
  bool fill_grouped(const std::string& name, plan::Weight& weight);
  // NVFP4 in GGUF: the companion tensor that multiplies the matrix.
  void fill_scale(const std::string& name, plan::Weight& weight);
  void fail(ErrorCode code, const std::string& what);

  const weights::Checkpoint& checkpoint_;
  Model& model_;
  int32_t layer_ = 0;
  Status status_;
};

}  // namespace kapitsa::model
