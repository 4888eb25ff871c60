// The facade's inspect(): a checkpoint's tables, and the memory that its Plan would need.
#include "kapitsa/inspect.h"

#include "base/system.h"
#include "engine/loader.h"
#include "weights/open.h"

#include <algorithm>
#include <map>

namespace kapitsa {
namespace {

using engine::program_limits;

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

MemoryReport report_of(const backend::MemoryNeed& need, int64_t weight_bytes) {
  MemoryReport memory;
  memory.weights_copied = need.weights;
  memory.weights_mapped = std::max<int64_t>(0, weight_bytes - need.weights);
  memory.kv_cache = need.kv_cache;
  memory.states = need.recurrent;
  memory.buffers = need.buffers;
  return memory;
}

// The need grows with the context, so bisect over pages.
Result<int32_t> largest_context(const LoadOptions& options, const plan::Plan& plan,
                                backend::Device& device, int64_t weight_bytes, int32_t trained) {
  const int64_t available = device.info().memory_free;
  const auto fits = [&](int32_t context) -> Result<bool> {
    KAPITSA_ASSIGN(const backend::MemoryNeed need,
                   device.memory_need(plan, program_limits(options, context)));
    const MemoryReport memory = report_of(need, weight_bytes);
    return available <= 0 || memory.total() <= available;
  };
  KAPITSA_ASSIGN(const bool all, fits(trained));
  if (all) return trained;
  int32_t low = 0;  // pages that fit
  int32_t high = trained / plan::kGrid + 1;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    KAPITSA_ASSIGN(const bool fit, fits(middle * plan::kGrid));
    (fit ? low : high) = middle;
  }
  return low * plan::kGrid;
}

Status measure(const LoadOptions& options, const model::Model& model, FileReport& report) {
  KAPITSA_ASSIGN(const auto device,
                 backend::open_device(options.backend,
                                      {.n_threads = options.threads, .force_isa = options.isa}));
  const int32_t context = engine::chosen_context(options, model.context_trained);
  KAPITSA_ASSIGN(const backend::MemoryNeed need,
                 device->memory_need(model.plan, program_limits(options, context)));
  const int64_t weight_bytes = engine::weight_bytes(model.plan);
  MemoryReport memory = report_of(need, weight_bytes);
  memory.backend = device->info().backend + " (" + device->info().name + ")";
  memory.context = context;
  memory.available = device->info().memory_free;
  if (memory.available <= 0) {  // the reference does not say
    KAPITSA_ASSIGN(const MemoryInfo host, memory_info());
    memory.available = host.available_bytes;
  }
  KAPITSA_ASSIGN(memory.largest_context, largest_context(options, model.plan, *device, weight_bytes,
                                                         model.context_trained));
  report.memory = memory;
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
