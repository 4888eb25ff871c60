// Binds the tensors that an architecture declares to those of a checkpoint: looks them up by the
// name of the file's format, checks shape and type, and adds them to the Plan. The first failure is
// kept and every later call is a no-op, so that a model file binds everything and asks once. Bytes
// are used where they lie in the mapped file; only small vectors are converted.
#pragma once

#include "model/arch.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kapitsa::model {

// A tensor's name in GGUF and in Hugging Face checkpoints (MLX keeps the latter). "{}" stands for
// the layer. An empty name: the format does not have the tensor. Names of the Hugging Face kind are
// those of a text model: model.*, lm_head.*; the files of multimodal models put more before them.
struct TensorName {
  std::string_view gguf;
  std::string_view hf;
};

// The name in this file, "{}" included; empty if the format does not have the tensor.
std::string file_name(const weights::Checkpoint& file, const TensorName& name);

// The matrices of all experts of a layer: one stacked tensor (GGUF, MLX), one tensor per expert
// (the second "{}" of `single`, Hugging Face), or a part of the rows of each expert in a tensor
// that joins gate and up.
struct ExpertName {
  TensorName stacked;  // hf: as MLX names it
  std::string_view single;
  TensorName joined = {};
  int32_t part = 0;
  int32_t n_parts = 1;
};

// Where an architecture's Hugging Face files name things otherwise than the shared blocks do: the
// beginning of a TensorName::hf, "{}" included, and what stands there instead.
struct Rename {
  std::string_view from;
  std::string_view to;
};

class Binder {
public:
  // The first rename that fits a name counts.
  Binder(const weights::Checkpoint& checkpoint, Model& model, std::vector<Rename> renames = {})
      : checkpoint_(checkpoint), model_(model), renames_(std::move(renames)) {}

  // The layer that "{}" stands for from now on.
  void set_layer(int32_t layer) {
    layer_ = layer;
    mtp_ = false;
  }
  // From now on names of layers stand for those of a multi-token-prediction head: mtp.layers.* in
  // Hugging Face checkpoints, the blocks after the trunk's in GGUF.
  void set_mtp_layer(int32_t n_trunk_layers, int32_t layer) {
    layer_ = is_gguf() ? n_trunk_layers + layer : layer;
    mtp_ = true;
  }
  // Added to the weights of norms: 1 where a file stores them less one.
  void set_norm_offset(float offset) { norm_offset_ = offset; }

  bool is_gguf() const { return checkpoint_.format() == weights::Format::gguf; }
  bool has(const TensorName& name) const;
  // The outermost dimension of a tensor; 0 if there is none.
  int64_t rows(const TensorName& name) const;

  // A weight matrix (out, in), plain or quantised.
  plan::WeightId matrix(const TensorName& name, int64_t out, int64_t in);
  // [left | right], each (out, in) in the file, as f32 (out, 2 * in).
  plan::WeightId columns(const TensorName& left, const TensorName& right, int64_t out, int64_t in);
  // Rows first..first + n - 1 of a matrix (rows, in) that joins several.
  plan::WeightId matrix_rows(const TensorName& name, int64_t rows, int64_t in, int64_t first,
                             int64_t n);
  // (experts, out, in).
  plan::WeightId experts(const ExpertName& name, int64_t n_experts, int64_t out, int64_t in);

  // A vector of n values as f32: where it lies in the file if it is f32, else converted.
  plan::WeightId vector(const TensorName& name, int64_t n);
  // The same of a tensor that the file cuts into `shape`.
  plan::WeightId vector(const TensorName& name, const std::vector<int64_t>& shape);
  plan::WeightId optional_vector(const TensorName& name, int64_t n);
  // The weight of a norm, with the norm offset. A name without a format: there is no norm.
  plan::WeightId norm(const TensorName& name, int64_t n);
  // A matrix of one row: (1, n), or (n) in the file.
  plan::WeightId row(const TensorName& name, int64_t n);
  // The filter of a depthwise convolution as f32 (channels, taps): (channels, 1, taps) or
  // (channels, taps, 1) in the file.
  plan::WeightId filter(const TensorName& name, int64_t channels, int64_t taps);

  // A tensor's values as f32, for model files that compute with them. Empty after a failure.
  std::vector<float> values(const TensorName& name, int64_t n);

  // A vector of n values f(value), as f32.
  template <typename Function>
  plan::WeightId mapped(const TensorName& name, int64_t n, const Function& f) {
    std::vector<float> result = values(name, n);
    for (float& value : result)
      value = f(value);
    return derived(full_name(name), std::move(result));
  }
  // A tensor of n 64-bit integers. Empty after a failure.
  std::vector<int64_t> integers(const TensorName& name, int64_t n);

  // A weight that the model file computed, of `out` rows.
  plan::WeightId derived(std::string name, std::vector<float> values, int64_t out = 1);

  // Refuses the file: "<file>: <what>".
  void fail(ErrorCode code, const std::string& what);
  const Status& status() const { return status_; }

private:
  std::string renamed(std::string_view hf) const;
  std::string full_name(const TensorName& name) const;
  std::vector<float> values_of(const weights::Tensor& tensor);
  const weights::Tensor* find(const std::string& name, const std::vector<int64_t>& shape);
  std::optional<plan::Weight> read_matrix(const std::string& name,
                                          const std::vector<int64_t>& shape);
  plan::WeightId add_matrix(const std::string& name, const std::vector<int64_t>& shape);
  plan::WeightId add_experts(plan::Weight weight);
  plan::WeightId separate_experts(const ExpertName& name, int64_t n_experts, int64_t out,
                                  int64_t in);
  plan::WeightId joined_experts(const ExpertName& name, int64_t n_experts, int64_t out, int64_t in);
  // MLX: the matrix as codes, scales and biases. Returns false when it is not quantised so.
  bool fill_grouped(const std::string& name, plan::Weight& weight);
  // ModelOpt in Hugging Face files: one matrix as codes and scales, added to the weight's experts.
  // Returns false when it is not quantised so.
  bool add_nvfp4(const std::string& name, plan::Weight& weight);
  // NVFP4 in GGUF: the companion tensor that multiplies the matrix.
  void fill_scale(const std::string& name, plan::Weight& weight);
  // Of small tensors and scales: one that is no number spoils every answer.
  void check_finite(const std::string& name, DType dtype, std::span<const std::byte> data);

  const weights::Checkpoint& checkpoint_;
  Model& model_;
  std::vector<Rename> renames_;
  int32_t layer_ = 0;
  bool mtp_ = false;
  float norm_offset_ = 0.0F;
  Status status_;
};

}  // namespace kapitsa::model
