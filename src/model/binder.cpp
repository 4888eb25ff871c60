#include "model/binder.h"

#include "weights/codec.h"

#include <span>

namespace kapitsa::model {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ")";
}

}  // namespace

std::string Binder::full_name(const TensorName& name) const {
  std::string full(checkpoint_.format() == weights::Format::gguf ? name.gguf : name.hf);
  if (const size_t place = full.find("{}"); place != std::string::npos) {
    full.replace(place, 2, std::to_string(layer_));
  }
  return full;
}

void Binder::fail(ErrorCode code, const std::string& what) {
  if (status_) status_ = Error{code, checkpoint_.path().string() + ": " + what};
}

bool Binder::has(const TensorName& name) const {
  const std::string full = full_name(name);
  return !full.empty() && checkpoint_.find(full) != nullptr;
}

const weights::Tensor* Binder::find(const TensorName& name, const std::vector<int64_t>& shape) {
  if (!status_) return nullptr;
  const std::string full = full_name(name);
  const weights::Tensor* tensor = checkpoint_.find(full);
  if (tensor == nullptr) {
    fail(ErrorCode::corrupt_file,
         "tensor '" + full + "' is missing, expected with shape " + shape_text(shape));
  } else if (tensor->shape != shape) {
    fail(ErrorCode::corrupt_file, "tensor '" + full + "': expected shape " + shape_text(shape) +
                                      ", found " + shape_text(tensor->shape));
    tensor = nullptr;
  }
  return tensor;
}

plan::WeightId Binder::matrix(const TensorName& name, int64_t out, int64_t in) {
  const weights::Tensor* tensor = find(name, {out, in});
  if (tensor == nullptr) return {};
  model_.n_parameters += out * in;
  return model_.plan.add_weight({tensor->name, tensor->dtype, 1, out, in, tensor->data});
}

plan::WeightId Binder::optional_matrix(const TensorName& name, int64_t out, int64_t in) {
  return has(name) ? matrix(name, out, in) : plan::WeightId{};
}

plan::WeightId Binder::vector(const TensorName& name, int64_t n) {
  const weights::Tensor* tensor = find(name, {n});
  if (tensor == nullptr) return {};
  if (tensor->dtype != DType::f32) return derived(tensor->name, values(name, n));
  model_.n_parameters += n;
  return model_.plan.add_weight({tensor->name, DType::f32, 1, 1, n, tensor->data});
}

plan::WeightId Binder::optional_vector(const TensorName& name, int64_t n) {
  return has(name) ? vector(name, n) : plan::WeightId{};
}

std::vector<float> Binder::values(const TensorName& name, int64_t n) {
  const weights::Tensor* tensor = find(name, {n});
  if (tensor == nullptr) return {};
  std::vector<float> result(static_cast<size_t>(n));
  if (const Status done = weights::dequantise(tensor->dtype, tensor->data, result); !done) {
    fail(done.error().code, "tensor '" + tensor->name + "': " + done.error().message);
    return {};
  }
  return result;
}

plan::WeightId Binder::derived(std::string name, std::vector<float> values) {
  if (!status_) return {};
  const auto n = static_cast<int64_t>(values.size());
  model_.n_parameters += n;
  const std::vector<float>& kept = model_.derived.emplace_back(std::move(values));
  return model_.plan.add_weight(
      {std::move(name), DType::f32, 1, 1, n, std::as_bytes(std::span(kept))});
}

}  // namespace kapitsa::model
