// Names decide types and values: what GGUF files have as f32 is f32 here, other matrices have the
// shape's type.
#include "engine/synthetic.h"

#include "base/huge_block.h"
#include "engine/synthetic_models.h"
#include "kapitsa/synthetic.h"
#include "model/arch.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"
#include "weights/gguf_write.h"
#include "weights/random_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

namespace kapitsa {
namespace engine {
namespace {

using weights::RandomKind;
using weights::Tensor;

RandomKind kind_of(std::string_view name) {
  if (name.ends_with("ssm_a")) return RandomKind::decay;
  if (name.ends_with("norm.weight") || name.ends_with("ssm_d")) return RandomKind::norm;
  return RandomKind::weight;
}

// Larger than memory, and a token reads a few rows of it: zeros, which take no memory and no disk.
bool is_row_table(std::string_view name) {
  return name == "per_layer_token_embd.weight";
}

// Beside vectors: matrices that converters leave in f32 because they are small and matter.
bool stays_f32(std::string_view name, const std::vector<int64_t>& shape) {
  return shape.size() < 2 || kind_of(name) != RandomKind::weight ||
         name.find("ffn_gate_inp") != std::string_view::npos ||
         name.find("ssm_conv1d") != std::string_view::npos;
}

DType type_of(const SyntheticShape& model, std::string_view name,
              const std::vector<int64_t>& shape) {
  if (stays_f32(name, shape)) return DType::f32;
  DType dtype = name == "output.weight" ? model.output : model.matrix;
  if (name.ends_with("ssm_alpha.weight") || name.ends_with("ssm_beta.weight")) dtype = DType::q8_0;
  if (shape.back() % dtype_info(dtype).block_elements != 0) dtype = DType::q4_0;
  return shape.back() % dtype_info(dtype).block_elements != 0 ? DType::f32 : dtype;
}

// Makes tensors and owns their memory.
class TensorMaker {
public:
  TensorMaker(SyntheticShape shape, bool with_data)
      : shape_(std::move(shape)), with_data_(with_data) {}

  // Nothing when the memory is refused; Binder then reports the tensor as missing.
  std::optional<Tensor> make(std::string_view name, const std::vector<int64_t>& shape) {
    Tensor tensor{.name = std::string(name), .dtype = type_of(shape_, name, shape), .shape = shape};
    const auto bytes = dtype_bytes(tensor.dtype, tensor.n_elements());
    if (!bytes) return {};
    const bool is_table = is_row_table(name);
    auto block = is_table ? HugeBlock::zeros(*bytes, "a synthetic table")
                          : HugeBlock::allocate(*bytes, "a synthetic tensor");
    if (!block) return {};
    const std::span<std::byte> data(block->data(), static_cast<size_t>(*bytes));
    const bool wanted = !is_table && (with_data_ || tensor.dtype == DType::f32);
    if (wanted && !random_.fill(name, tensor.dtype, kind_of(name), data)) return {};
    tensor.data = data;
    blocks_.push_back(std::move(*block));
    return tensor;
  }

private:
  SyntheticShape shape_;
  bool with_data_;
  weights::RandomData random_;
  std::vector<HugeBlock> blocks_;
};

// A byte-level vocabulary with one merge; the ids above it are never the result of encoding.
void add_vocabulary(int32_t n_vocab, weights::Checkpoint& file) {
  weights::StringList tokens;
  std::vector<int64_t> types(static_cast<size_t>(n_vocab), 1);
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    text::utf8_append(text, text::byte_to_alphabet(static_cast<uint8_t>(byte)));
    tokens.push_back(text);
  }
  tokens.push_back("th");
  for (int32_t id = 257; id + 1 < n_vocab; ++id)
    tokens.push_back(fmt::format("unused{}", id));
  tokens.push_back("<|endoftext|>");
  types.back() = 3;  // control
  weights::StringList merges;
  merges.push_back("t h");
  file.set("tokenizer.ggml.model", std::string("gpt2"));
  file.set("tokenizer.ggml.pre", std::string("qwen2"));
  file.set("tokenizer.ggml.tokens", std::move(tokens));
  file.set("tokenizer.ggml.token_type", std::move(types));
  file.set("tokenizer.ggml.merges", std::move(merges));
  file.set("tokenizer.ggml.eos_token_id", int64_t{n_vocab - 1});
}

Result<SyntheticShape> shape_named(const SyntheticOptions& options) {
  SyntheticShape shape = synthetic_shape(options.name);
  if (shape.architecture.empty()) {
    return Error{ErrorCode::not_found,
                 fmt::format("no synthetic model is called '{}': expected one of {}", options.name,
                             fmt::join(synthetic_names(), ", "))};
  }
  const int32_t n = options.n_layers;
  if (n != 0 && (n < shape.min_layers || n > shape.n_layers)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("layers: expected {} to {} for {}, found {}", shape.min_layers,
                             shape.n_layers, options.name, n)};
  }
  return shape;
}

}  // namespace

Result<weights::Checkpoint> synthetic_checkpoint(const SyntheticOptions& options) {
  KAPITSA_ASSIGN(SyntheticShape shape, shape_named(options));
  const int32_t n_layers = options.n_layers > 0 ? options.n_layers : shape.n_layers;
  weights::Checkpoint file(weights::Format::gguf, "synthetic-" + options.name);
  file.set("general.architecture", shape.architecture);
  file.set("general.name", "synthetic-" + options.name);
  const std::string prefix = shape.architecture + ".";
  file.set(prefix + "block_count", int64_t{n_layers});
  file.set(prefix + "embedding_length", int64_t{shape.hidden});
  file.set(prefix + "vocab_size", int64_t{shape.n_vocab});
  for (const auto& [key, value] : shape.metadata) {
    weights::Value own = value;
    if (auto* list = std::get_if<std::vector<int64_t>>(&own);
        list != nullptr && list->size() == static_cast<size_t>(shape.n_layers)) {
      list->resize(static_cast<size_t>(n_layers));
    }
    file.set(prefix + key, std::move(own));
  }
  if (shape.block > 0) {
    file.set("diffusion.block_length", int64_t{shape.block});
    file.set("diffusion.mask_token_id", int64_t{shape.mask_token});
  }
  add_vocabulary(shape.n_vocab, file);
  const auto maker = std::make_shared<TensorMaker>(shape, options.with_data);
  file.set_maker([maker](std::string_view name, const std::vector<int64_t>& wanted) {
    return maker->make(name, wanted);
  });
  // Loaders look at these two before they bind: the first says how many tokens there are, and where
  // the second is not there, the first serves for both.
  bool made = file.find_or_make("token_embd.weight", {shape.n_vocab, shape.hidden}) != nullptr;
  if (!shape.tied)
    made = made && file.find_or_make("output.weight", {shape.n_vocab, shape.hidden}) != nullptr;
  if (!made) return Error{ErrorCode::out_of_memory, "out of memory: no room for the model"};
  return file;
}

}  // namespace engine

std::vector<std::string_view> synthetic_models() {
  return engine::synthetic_names();
}

Result<int64_t> write_synthetic(const SyntheticFile& wanted) {
  using weights::Tensor;
  KAPITSA_ASSIGN(weights::Checkpoint file,
                 engine::synthetic_checkpoint(
                     {.name = wanted.model, .n_layers = wanted.n_layers, .with_data = false}));
  KAPITSA_ASSIGN(const model::Model model, model::load_model(file, {}));
  weights::RandomData random;
  return weights::write_gguf(
      wanted.path,
      {.metadata = file.metadata(),
       .tensors = file.tensors(),
       .data =
           [&](const Tensor& tensor, std::span<std::byte> out) {
             return random.fill(tensor.name, tensor.dtype, engine::kind_of(tensor.name), out);
           },
       .is_zero = [](const Tensor& tensor) { return engine::is_row_table(tensor.name); },
       .progress = wanted.progress});
}

}  // namespace kapitsa
