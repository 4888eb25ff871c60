// Chooses the architecture of a checkpoint by the name that the file carries.
#include "model/arch.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <variant>

namespace kapitsa::model {
namespace {

Result<std::string> architecture_name(const weights::Checkpoint& checkpoint) {
  return checkpoint.string(checkpoint.format() == weights::Format::gguf ? "general.architecture"
                                                                        : "model_type");
}

// The layer in a tensor's name, "<prefix>N.": -1 when it has none.
int64_t layer_of(std::string_view tensor, std::string_view prefix) {
  if (!tensor.starts_with(prefix)) return -1;
  int64_t layer = -1;
  const char* begin = tensor.data() + prefix.size();
  const char* end = tensor.data() + tensor.size();
  const auto [stop, error] = std::from_chars(begin, end, layer);
  return error == std::errc() && stop != end && *stop == '.' ? layer : -1;
}

// Layers that the metadata does not count would be left out in silence.
Status check_layer_count(const weights::Checkpoint& file, const std::string& architecture) {
  const bool gguf = file.format() == weights::Format::gguf;
  const std::string key = gguf ? architecture + ".block_count" : "num_hidden_layers";
  if (!file.has(key)) return {};  // the architecture says what it misses
  KAPITSA_ASSIGN(int64_t n_layers, file.integer(key, 0, 1 << 16));
  for (const char* more : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    if (gguf || !file.has(more)) continue;
    KAPITSA_ASSIGN(const int64_t n, file.integer(more, 0, 1 << 16));
    n_layers += n;
  }
  for (const weights::Tensor& tensor : file.tensors()) {
    const int64_t layer = layer_of(tensor.name, gguf ? "blk." : "model.layers.");
    if (layer < n_layers) continue;
    return Error{ErrorCode::corrupt_file, file.path().string() + ": " + key +
                                              ": expected at least " + std::to_string(layer + 1) +
                                              " because of tensor '" + tensor.name + "', found " +
                                              std::to_string(n_layers)};
  }
  return {};
}

// Weights that another tool quantised have names and meanings of their own.
Status check_quantisation(const weights::Checkpoint& file) {
  const std::string key = "quantization_config.quant_method";
  if (file.format() == weights::Format::gguf || !file.has(key)) return {};
  KAPITSA_ASSIGN(const std::string method, file.string(key));
  if (method == "mlx" || method == "modelopt") return {};
  return Error{ErrorCode::unsupported,
               file.path().string() + ": " + key +
                   ": expected weights that are plain or quantised by MLX or ModelOpt, found " +
                   method};
}

// Tensors that are missing or have other shapes: what that may come from.
Error with_hint(Error error, const std::string& architecture) {
  if (error.code == ErrorCode::corrupt_file && error.message.find("tensor '") != std::string::npos)
    error.message += "; the file is incomplete or damaged, or is not of the architecture '" +
                     architecture + "' that it names: download it again, or take another one";
  return error;
}

// Any architecture may be trained to write block by block: its file says so then.
Status set_diffusion(const weights::Checkpoint& file, Model& model) {
  if (!model.diffusion && !has_masked_diffusion(file)) return {};
  if (!model.diffusion) {
    KAPITSA_ASSIGN(model.diffusion, read_masked_diffusion(file));
  }
  const auto* masked = std::get_if<MaskedDiffusion>(&model.diffusion->rule);
  if (masked == nullptr) return {};
  if (masked->mask_token >= model.plan.n_vocab) {
    return Error{ErrorCode::corrupt_file, file.path().string() +
                                              ": mask token: expected an id below " +
                                              std::to_string(model.plan.n_vocab) + ", found " +
                                              std::to_string(masked->mask_token)};
  }
  if (const Status made = make_block_bidirectional(model.plan, model.diffusion->block); !made)
    return Error{made.error().code, file.path().string() + ": " + made.error().message};
  return {};
}

}  // namespace

Result<Model> load_model(const weights::Checkpoint& checkpoint, const RecordOptions& options) {
  KAPITSA_ASSIGN(const std::string name, architecture_name(checkpoint));
  std::string known;
  for (const ArchDef* arch : architectures()) {
    const auto& names =
        checkpoint.format() == weights::Format::gguf ? arch->gguf_names : arch->model_types;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      KAPITSA_TRY(check_quantisation(checkpoint));
      auto loaded = arch->load(checkpoint, options);
      if (!loaded) return with_hint(loaded.error(), name);
      Model model = std::move(*loaded);
      KAPITSA_TRY(check_layer_count(checkpoint, name));
      KAPITSA_TRY(set_diffusion(checkpoint, model));
      return model;
    }
    for (const std::string_view other : names)
      known.append(known.empty() ? "" : ", ").append(other);
  }
  return Error{ErrorCode::unsupported, checkpoint.path().string() + ": architecture '" + name +
                                           "' is not supported; this build knows: " + known};
}

}  // namespace kapitsa::model
