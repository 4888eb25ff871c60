#include "model/binder.h"

#include "weights/codec.h"
#include "weights/hf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace kapitsa::model {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// The name without its last part: "a.b.weight" is "a.b".
std::string without_suffix(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

void replace_first(std::string& text, int64_t number) {
  if (const size_t place = text.find("{}"); place != std::string::npos) {
    text.replace(place, 2, std::to_string(number));
  }
}

// Index of the first value whose exponent has all bits set (infinity, NaN), -1 for none. Little
// endian, as the files are. Blocks without a way out are read at the speed of memory.
template <typename Bits>
int64_t first_not_finite(std::span<const std::byte> data, Bits exponent) {
  constexpr size_t kBlock = 4096;
  const size_t n = data.size() / sizeof(Bits);
  const auto is_finite = [&](size_t i) {
    Bits bits = 0;
    std::memcpy(&bits, data.data() + i * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) != exponent;
  };
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, n);
    bool all = true;
    for (size_t i = begin; i < end; ++i)
      all &= is_finite(i);
    if (all) continue;
    for (size_t i = begin; i < end; ++i) {
      if (!is_finite(i)) return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// What stands in place of "model." and before all other names. A multimodal model keeps its text
// part below the first of these in transformers, below the second in MLX.
struct Root {
  std::string_view model;
  std::string_view other;
};
constexpr Root kRoots[] = {{"model.language_model.", ""},
                           {"language_model.model.", "language_model."}};

}  // namespace

std::string file_name(const weights::Checkpoint& file, const TensorName& name) {
  if (file.format() == weights::Format::gguf) return std::string(name.gguf);
  if (name.hf.empty()) return "";
  constexpr std::string_view kModel = "model.";
  for (const Root& root : kRoots) {
    if (file.find(std::string(root.model) + "embed_tokens.weight") == nullptr) continue;
    if (!name.hf.starts_with(kModel)) return std::string(root.other).append(name.hf);
    return std::string(root.model).append(name.hf.substr(kModel.size()));
  }
  return std::string(name.hf);
}

std::string Binder::renamed(std::string_view hf) const {
  std::string name(hf);
  for (const Rename& rename : renames_) {
    if (hf.starts_with(rename.from)) return name.replace(0, rename.from.size(), rename.to);
  }
  return name;
}

std::string Binder::full_name(const TensorName& name) const {
  std::string own = renamed(name.hf);
  if (const size_t dot = own.find(".layers."); mtp_ && dot != std::string::npos) {
    own.replace(0, dot, "mtp");
  }
  std::string full = file_name(checkpoint_, {name.gguf, own});
  replace_first(full, layer_);
  return full;
}

void Binder::fail(ErrorCode code, const std::string& what) {
  if (status_) status_ = Error{code, checkpoint_.path().string() + ": " + what};
}

bool Binder::has(const TensorName& name) const {
  const std::string full = full_name(name);
  return !full.empty() && checkpoint_.find(full) != nullptr;
}

int64_t Binder::rows(const TensorName& name) const {
  const weights::Tensor* tensor = checkpoint_.find(full_name(name));
  return tensor == nullptr || tensor->shape.empty() ? 0 : tensor->shape[0];
}

const weights::Tensor* Binder::find(const std::string& name, const std::vector<int64_t>& shape) {
  if (!status_) return nullptr;
  const weights::Tensor* tensor = checkpoint_.find_or_make(name, shape);
  if (!is_gguf() && checkpoint_.find(name + "_scale") != nullptr) {
    fail(ErrorCode::unsupported,
         fmt::format("tensor '{0}': scales of its own ({0}_scale) are supported for matrices only",
                     name));
    tensor = nullptr;
  } else if (!is_gguf() && checkpoint_.find(name + "_packed") != nullptr) {
    fail(ErrorCode::unsupported,
         fmt::format("tensor '{}_packed': the format compressed-tensors is not supported", name));
    tensor = nullptr;
  } else if (tensor == nullptr) {
    fail(ErrorCode::corrupt_file,
         fmt::format("tensor '{}' is missing, expected with shape {}", name, shape_text(shape)));
  } else if (tensor->shape != shape) {
    fail(ErrorCode::corrupt_file, fmt::format("tensor '{}': expected shape {}, found {}", name,
                                              shape_text(shape), shape_text(tensor->shape)));
    tensor = nullptr;
  } else if (!weights::can_dequantise(tensor->dtype)) {
    fail(ErrorCode::unsupported, fmt::format("tensor '{}': weights of type {} are not supported",
                                             name, dtype_info(tensor->dtype).name));
    tensor = nullptr;
  }
  return tensor;
}

void Binder::check_finite(const std::string& name, DType dtype, std::span<const std::byte> data) {
  if (!status_ || (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)) return;
  const int64_t at = dtype == DType::f32   ? first_not_finite<uint32_t>(data, 0x7F800000)
                     : dtype == DType::f16 ? first_not_finite<uint16_t>(data, 0x7C00)
                                           : first_not_finite<uint16_t>(data, 0x7F80);
  if (at < 0) return;
  fail(ErrorCode::corrupt_file, fmt::format("tensor '{}': value {}: expected a finite number, "
                                            "found infinity or NaN",
                                            name, at));
}

bool Binder::fill_grouped(const std::string& name, plan::Weight& weight) {
  if (checkpoint_.format() != weights::Format::mlx) return false;
  const auto module = weights::find_mlx_module(checkpoint_, without_suffix(name));
  if (!module) {
    if (status_) status_ = module.error();
    return true;
  }
  if (!*module) return false;
  const weights::MlxModule& m = **module;
  const int64_t words = weight.in * m.quant.bits / 32;
  const std::vector<int64_t> stacked = {weight.experts, weight.out, words};
  const std::vector<int64_t> single = {weight.out, words};
  if (m.weight->shape != (weight.experts > 1 ? stacked : single)) {
    fail(ErrorCode::corrupt_file, fmt::format("tensor '{}': expected shape {}, found {}", name,
                                              shape_text(weight.experts > 1 ? stacked : single),
                                              shape_text(m.weight->shape)));
    return true;
  }
  weight.dtype = DType::grouped;
  weight.group = m.quant;
  weight.data = m.weight->data;
  weight.scales = m.scales->data;
  weight.scale_dtype = m.scales->dtype;
  if (m.biases != nullptr) weight.biases = m.biases->data;
  check_finite(m.scales->name, m.scales->dtype, m.scales->data);
  if (m.biases != nullptr) check_finite(m.biases->name, m.biases->dtype, m.biases->data);
  return true;
}

bool Binder::add_nvfp4(const std::string& name, plan::Weight& weight) {
  if (checkpoint_.format() != weights::Format::hf) return false;
  const auto matrix = weights::find_nvfp4_matrix(checkpoint_, name, weight.out, weight.in);
  if (!matrix) {
    if (status_) status_ = matrix.error();
    return true;
  }
  if (!*matrix) return false;
  weight.dtype = DType::grouped;
  weight.group = weights::Nvfp4Matrix::kQuant;
  weight.expert_data.push_back((*matrix)->weight->data);
  weight.expert_scales.push_back((*matrix)->scales->data);
  weight.scale.push_back((*matrix)->scale);
  return true;
}

void Binder::fill_scale(const std::string& name, plan::Weight& weight) {
  if (!is_gguf() || weight.dtype != DType::nvfp4) return;
  const std::string companion = without_suffix(name) + ".scale";
  const weights::Tensor* tensor = checkpoint_.find(companion);
  if (tensor == nullptr) return;
  if (tensor->n_elements() != 1 && tensor->n_elements() != weight.experts) {
    fail(ErrorCode::corrupt_file, fmt::format("tensor '{}': expected 1 or {} values, found {}",
                                              companion, weight.experts, tensor->n_elements()));
    return;
  }
  weight.scale.resize(static_cast<size_t>(tensor->n_elements()));
  if (const Status done = weights::dequantise(tensor->dtype, tensor->data, weight.scale); !done) {
    fail(done.error().code, fmt::format("tensor '{}': {}", companion, done.error().message));
  }
}

std::optional<plan::Weight> Binder::read_matrix(const std::string& name,
                                                const std::vector<int64_t>& shape) {
  if (!status_) return {};
  plan::Weight weight;
  weight.name = name;
  weight.experts = shape.size() == 3 ? shape[0] : 1;
  weight.out = shape[shape.size() - 2];
  weight.in = shape.back();
  if (!fill_grouped(name, weight) && !(weight.experts == 1 && add_nvfp4(name, weight))) {
    const weights::Tensor* tensor = find(name, shape);
    if (tensor == nullptr) return {};
    weight.dtype = tensor->dtype;
    weight.data = tensor->data;
    fill_scale(name, weight);
  }
  if (!status_) return {};
  return weight;
}

plan::WeightId Binder::add_matrix(const std::string& name, const std::vector<int64_t>& shape) {
  std::optional<plan::Weight> weight = read_matrix(name, shape);
  return weight ? add_experts(std::move(*weight)) : plan::WeightId{};
}

plan::WeightId Binder::matrix_rows(const TensorName& name, int64_t rows, int64_t in, int64_t first,
                                   int64_t n) {
  std::optional<plan::Weight> weight = read_matrix(full_name(name), {rows, in});
  if (!weight) return {};
  const auto cut = [&](std::span<const std::byte>& bytes) {
    const size_t row = bytes.size() / static_cast<size_t>(rows);
    bytes = bytes.subspan(static_cast<size_t>(first) * row, static_cast<size_t>(n) * row);
  };
  cut(weight->data);
  cut(weight->scales);
  cut(weight->biases);
  weight->name += fmt::format(", rows from {}", first);  // names of weights are unique
  weight->out = n;
  return add_experts(std::move(*weight));
}

plan::WeightId Binder::matrix(const TensorName& name, int64_t out, int64_t in) {
  return add_matrix(full_name(name), {out, in});
}

plan::WeightId Binder::columns(const TensorName& left, const TensorName& right, int64_t out,
                               int64_t in) {
  std::vector<float> joined(static_cast<size_t>(2 * out * in));
  for (const bool is_right : {false, true}) {
    const weights::Tensor* tensor = find(full_name(is_right ? right : left), {out, in});
    if (tensor == nullptr) return {};
    const std::vector<float> half = values_of(*tensor);
    if (!status_) return {};
    for (int64_t row = 0; row < out; ++row) {
      const int64_t place = (2 * row + (is_right ? 1 : 0)) * in;
      std::copy_n(half.begin() + row * in, in, joined.begin() + place);
    }
  }
  return derived(full_name(left) + ", " + full_name(right), std::move(joined), out);
}

plan::WeightId Binder::add_experts(plan::Weight weight) {
  model_.n_parameters += weight.experts * weight.out * weight.in;
  return model_.plan.add_weight(std::move(weight));
}

plan::WeightId Binder::experts(const ExpertName& name, int64_t n_experts, int64_t out, int64_t in) {
  if (has(name.joined)) return joined_experts(name, n_experts, out, in);
  if (is_gguf() || has(name.stacked)) {
    return add_matrix(full_name(name.stacked), {n_experts, out, in});
  }
  return separate_experts(name, n_experts, out, in);
}

plan::WeightId Binder::joined_experts(const ExpertName& name, int64_t n_experts, int64_t out,
                                      int64_t in) {
  const std::string full = full_name(name.joined);
  const weights::Tensor* tensor = find(full, {n_experts, name.n_parts * out, in});
  if (tensor == nullptr) return {};
  plan::Weight weight;
  weight.name = fmt::format("{}, part {}", full, name.part);  // names of weights are unique
  weight.dtype = tensor->dtype;
  weight.experts = n_experts;
  weight.out = out;
  weight.in = in;
  const size_t bytes = tensor->data.size() / static_cast<size_t>(name.n_parts * n_experts);
  for (int64_t e = 0; e < n_experts; ++e) {
    const auto place = static_cast<size_t>(e * name.n_parts + name.part);
    weight.expert_data.push_back(tensor->data.subspan(place * bytes, bytes));
  }
  fill_scale(full, weight);
  return status_ ? add_experts(std::move(weight)) : plan::WeightId{};
}

plan::WeightId Binder::separate_experts(const ExpertName& name, int64_t n_experts, int64_t out,
                                        int64_t in) {
  plan::Weight weight;
  weight.name = full_name({"", name.single});
  weight.experts = n_experts;
  weight.out = out;
  weight.in = in;
  for (int64_t e = 0; e < n_experts; ++e) {
    std::string own = weight.name;
    replace_first(own, e);
    const DType before = weight.dtype;
    if (!add_nvfp4(own, weight)) {
      const weights::Tensor* tensor = find(own, {out, in});
      if (tensor == nullptr) return {};
      weight.dtype = tensor->dtype;
      weight.expert_data.push_back(tensor->data);
    }
    if (!status_) return {};
    if (e > 0 && weight.dtype != before) {
      fail(ErrorCode::corrupt_file,
           fmt::format("tensor '{}': expected {} like the others, found {}", own,
                       dtype_info(before).name, dtype_info(weight.dtype).name));
      return {};
    }
  }
  return add_experts(std::move(weight));
}

plan::WeightId Binder::vector(const TensorName& name, int64_t n) {
  return vector(name, std::vector<int64_t>{n});
}

plan::WeightId Binder::vector(const TensorName& name, const std::vector<int64_t>& shape) {
  const weights::Tensor* tensor = find(full_name(name), shape);
  if (tensor == nullptr) return {};
  check_finite(tensor->name, tensor->dtype, tensor->data);
  if (!status_) return {};
  if (tensor->dtype != DType::f32) return derived(tensor->name, values_of(*tensor));
  model_.n_parameters += tensor->n_elements();
  plan::Weight weight;
  weight.name = tensor->name;
  weight.in = tensor->n_elements();
  weight.data = tensor->data;
  return model_.plan.add_weight(std::move(weight));
}

plan::WeightId Binder::optional_vector(const TensorName& name, int64_t n) {
  return has(name) ? vector(name, n) : plan::WeightId{};
}

plan::WeightId Binder::norm(const TensorName& name, int64_t n) {
  if (name.gguf.empty() && name.hf.empty()) return {};
  if (norm_offset_ == 0.0F) return vector(name, n);
  return mapped(name, n, [this](float weight) { return weight + norm_offset_; });
}

plan::WeightId Binder::row(const TensorName& name, int64_t n) {
  const weights::Tensor* tensor = checkpoint_.find(full_name(name));
  return tensor != nullptr && tensor->shape.size() == 1 ? vector(name, n) : matrix(name, 1, n);
}

plan::WeightId Binder::filter(const TensorName& name, int64_t channels, int64_t taps) {
  const std::string full = full_name(name);
  const std::vector<int64_t> mlx_shape = {channels, taps, 1};
  std::vector<int64_t> shape = {channels, taps};
  if (!is_gguf()) shape = {channels, 1, taps};
  if (const auto* found = checkpoint_.find(full); found != nullptr && found->shape == mlx_shape) {
    shape = mlx_shape;  // the same order in memory
  }
  const weights::Tensor* tensor = find(full, shape);
  return tensor == nullptr ? plan::WeightId{} : derived(full, values_of(*tensor), channels);
}

std::vector<float> Binder::values(const TensorName& name, int64_t n) {
  const weights::Tensor* tensor = find(full_name(name), {n});
  return tensor == nullptr ? std::vector<float>{} : values_of(*tensor);
}

std::vector<int64_t> Binder::integers(const TensorName& name, int64_t n) {
  if (!status_) return {};
  const std::string full = full_name(name);
  const weights::Tensor* tensor = checkpoint_.find(full);
  const std::vector<int64_t> shape = {n};
  if (tensor == nullptr || tensor->shape != shape || tensor->dtype != DType::i64) {
    const std::string found =
        tensor == nullptr
            ? "none"
            : fmt::format("{} {}", dtype_info(tensor->dtype).name, shape_text(tensor->shape));
    fail(ErrorCode::corrupt_file,
         fmt::format("tensor '{}': expected i64 {}, found {}", full, shape_text(shape), found));
    return {};
  }
  std::vector<int64_t> result(static_cast<size_t>(n));
  std::memcpy(result.data(), tensor->data.data(), tensor->data.size());
  return result;
}

std::vector<float> Binder::values_of(const weights::Tensor& tensor) {
  std::vector<float> result(static_cast<size_t>(tensor.n_elements()));
  if (const Status done = weights::dequantise(tensor.dtype, tensor.data, result); !done) {
    fail(done.error().code, fmt::format("tensor '{}': {}", tensor.name, done.error().message));
    return {};
  }
  return result;
}

plan::WeightId Binder::derived(std::string name, std::vector<float> values, int64_t out) {
  if (!status_) return {};
  model_.n_parameters += static_cast<int64_t>(values.size());
  const std::vector<float>& kept = model_.derived.emplace_back(std::move(values));
  plan::Weight weight;
  weight.name = std::move(name);
  weight.out = out;
  weight.in = static_cast<int64_t>(kept.size()) / out;
  weight.data = std::as_bytes(std::span(kept));
  return model_.plan.add_weight(std::move(weight));
}

}  // namespace kapitsa::model
