// Chooses the architecture of a checkpoint by the name that the file carries.
#include "model/arch.h"

#include <algorithm>

namespace kapitsa::model {
namespace {

Result<std::string> architecture_name(const weights::Checkpoint& checkpoint) {
  return checkpoint.string(checkpoint.format() == weights::Format::gguf ? "general.architecture"
                                                                        : "model_type");
}

}  // namespace

Result<Model> load_model(const weights::Checkpoint& checkpoint, const RecordOptions& options) {
  KAPITSA_ASSIGN(const std::string name, architecture_name(checkpoint));
  std::string known;
  for (const ArchDef* arch : architectures()) {
    const auto& names =
        checkpoint.format() == weights::Format::gguf ? arch->gguf_names : arch->model_types;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return arch->load(checkpoint, options);
    }
    for (const std::string_view other : names)
      known.append(known.empty() ? "" : ", ").append(other);
  }
  return Error{ErrorCode::unsupported, checkpoint.path().string() + ": architecture '" + name +
                                           "' is not supported; this build knows: " + known};
}

}  // namespace kapitsa::model
