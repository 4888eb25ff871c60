// The facade's inspect(): a checkpoint's tables, and the memory that its Plan would need.
#include "kapitsa/inspect.h"

#include "engine/loader.h"
#include "engine/memory.h"
#include "weights/open.h"

#include <algorithm>
#include <map>

namespace kapitsa {
namespace {

std::string architecture_of(const weights::Checkpoint& file) {
  const char* key = file.format() == weights::Format::gguf ? "general.architecture" : "model_type";
  const auto name = file.string_or(key, "");
  return name ? *name : std::string();
}

std::string name_of(const weights::Checkpoint& file) {
  const auto name = file.string_or("general.name", "");
  return name && !name->empty() ? *name : file.path().stem().string();
}

void list_tensors(const weights::Checkpoint& file, FileReport& report) {
  std::map<DType, TypeShare> types;
  for (const weights::Tensor& tensor : file.tensors()) {
    const std::string type(dtype_info(tensor.dtype).name);
    const auto bytes = static_cast<int64_t>(tensor.data.size());
    report.tensors.push_back({tensor.name, type, tensor.shape, bytes});
    report.n_elements += tensor.n_elements();
    report.weight_bytes += bytes;
    TypeShare& share = types[tensor.dtype];
    share.type = type;
    share.n_tensors += 1;
    share.n_elements += tensor.n_elements();
    share.bytes += bytes;
  }
  for (const auto& [dtype, share] : types)
    report.types.push_back(share);
  std::ranges::stable_sort(report.types, std::greater(), &TypeShare::bytes);
  const auto most = std::ranges::max_element(report.types, {}, &TypeShare::n_elements);
  if (most != report.types.end()) report.quantisation = most->type;
}

Status measure(const LoadOptions& options, const model::Model& model, FileReport& report) {
  KAPITSA_ASSIGN(const auto device,
                 backend::open_device(options.backend,
                                      {.n_threads = options.threads, .force_isa = options.isa}));
  KAPITSA_ASSIGN(const engine::Sizing sizing, engine::size_model(options, model, *device));
  report.memory = sizing.report;
  return {};
}

}  // namespace

Result<FileReport> inspect(const LoadOptions& options) {
  KAPITSA_TRY(engine::check_options(options));
  KAPITSA_ASSIGN(const weights::Checkpoint file, engine::open_model(options, false));
  FileReport report;
  report.path = file.path().string();
  report.format = weights::to_string(file.format());
  report.name = name_of(file);
  report.architecture = architecture_of(file);
  for (const auto& [key, value] : file.metadata())
    report.metadata.emplace_back(key, weights::describe(value));
  const auto model = model::load_model(file, {.kv_dtype = engine::kv_dtype(options.kv_type)});
  list_tensors(file, report);  // a synthetic model has its tensors only now
  if (!model) {
    report.not_runnable = model.error().message;
    return report;
  }
  report.n_layers = model->n_layers;
  report.n_vocab = model->plan.n_vocab;
  report.context_trained = model->context_trained;
  report.n_parameters = model->n_parameters;
  if (const Status measured = measure(options, *model, report); !measured)
    report.not_runnable = measured.error().message;
  return report;
}

}  // namespace kapitsa
