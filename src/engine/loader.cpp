#include "engine/loader.h"

#include "backend/weight_row.h"
#include "engine/memory.h"
#include "engine/scheduler.h"
#include "engine/synthetic.h"
#include "text/family.h"
#include "weights/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace kapitsa::engine {
namespace {

// Rows of logits that the blocks of one pass may have: each is as wide as the vocabulary.
constexpr int32_t kMaxBlockOutputs = 256;

// The type that holds the most parameters.
std::string main_dtype(const plan::Plan& plan) {
  std::map<DType, int64_t> elements;
  for (const plan::Weight& weight : plan.weights()) {
    elements[weight.dtype] += weight.experts * weight.out * weight.in;
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "" : std::string(dtype_info(most->first).name);
}

// The name of a GGUF file without its extension, or of a folder, which may contain dots.
std::string file_name(const weights::Checkpoint& file) {
  if (file.format() == weights::Format::gguf) return file.path().stem().string();
  return (file.path() / "").parent_path().filename().string();
}

int64_t weight_bytes(const plan::Plan& plan) {
  int64_t bytes = 0;
  for (const plan::Weight& weight : plan.weights())
    bytes += backend::stored_bytes(weight);
  return bytes;
}

// An 8-bit cache has whole blocks in every head; the model's own plan is valid.
Status check_cache(const LoadOptions& options, const Loaded& loaded) {
  if (options.kv_type != KvType::int8) return {};
  const Status valid = plan::validate(loaded.model->plan);
  if (valid) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("{}: no int8 keys and values for this model, take f16: {}",
                           loaded.file->path().string(), valid.error().message)};
}

// Chooses the context and refuses what cannot fit, before anything is allocated.
Status size(const LoadOptions& options, Loaded& loaded) {
  KAPITSA_ASSIGN(Sizing sizing, size_model(options, *loaded.model, *loaded.device));
  KAPITSA_TRY(check_fits(sizing, options, *loaded.model, loaded.file->path().string()));
  const MemoryReport& report = sizing.report;
  loaded.info.context = report.context;
  loaded.info.memory_bytes = report.allocated();
  loaded.info.weights_on_disk =
      std::min(report.weights_mapped, std::max<int64_t>(0, report.total() - report.available));
  loaded.limits = std::move(sizing.limits);
  // Never two copies: pages of the file that a backend has copied leave the process at once.
  loaded.limits.copied = [file = loaded.file.get()](std::span<const std::byte> part) {
    file->release(part);
  };
  return {};
}

void describe(Loaded& loaded) {
  ModelInfo& info = loaded.info;
  const model::Model& model = *loaded.model;
  info.name = loaded.file->string_or("general.name", "").ok()
                  ? *loaded.file->string_or("general.name", "")
                  : std::string();
  if (info.name.empty()) info.name = file_name(*loaded.file);
  info.architecture = model.architecture;
  info.quantisation = main_dtype(model.plan);
  info.backend = loaded.device->info().backend + " (" + loaded.device->info().name + ")";
  info.n_parameters = model.n_parameters;
  info.file_bytes = weight_bytes(model.plan);
  info.n_layers = model.n_layers;
  info.n_vocab = model.plan.n_vocab;
  info.block = model.diffusion ? model.diffusion->block : 0;
  info.context_trained = model.context_trained;
  info.has_chat_template = loaded.chat_template.has_value();
}

Status load_text(const LoadOptions& options, Loaded& loaded) {
  KAPITSA_ASSIGN(Vocabulary vocabulary, read_vocabulary(*loaded.file));
  loaded.vocabulary = std::make_unique<Vocabulary>(std::move(vocabulary));
  const std::string& source =
      options.chat_template.empty() ? loaded.vocabulary->chat_template : options.chat_template;
  if (const text::Family* family = text::find_family(loaded.model->architecture, source)) {
    loaded.info.family = family->name;
    loaded.vocabulary->add_stops(family->stop_tokens);
  }
  if (source.empty()) return {};
  auto parsed = text::ChatTemplate::parse(source);
  if (!parsed) {
    return Error{parsed.error().code,
                 loaded.file->path().string() + ": chat template: " + parsed.error().message};
  }
  loaded.chat_template = std::move(*parsed);
  loaded.info.chat_template = source;
  return {};
}

}  // namespace

Status check_options(const LoadOptions& options) {
  const auto outside = [](const char* field, int64_t low, int64_t high, int64_t found) {
    return Error{ErrorCode::invalid_argument,
                 std::string(field) + ": expected " + std::to_string(low) + " to " +
                     std::to_string(high) + ", found " + std::to_string(found)};
  };
  if (options.context < 0 || options.context > (1 << 24)) {
    return outside("context", 1, 1 << 24, options.context);
  }
  if (options.max_sequences < 1 || options.max_sequences > kMaxDecodeRows) {
    return outside("max_sequences", 1, kMaxDecodeRows, options.max_sequences);
  }
  if (options.threads < 0 || options.threads > 1024) {
    return outside("threads", 0, 1024, options.threads);
  }
  return {};
}

Result<weights::Checkpoint> open_model(const LoadOptions& options, bool with_data) {
  if (options.synthetic.empty()) return weights::open_checkpoint(options.model);
  return synthetic_checkpoint(
      {.name = options.synthetic, .n_layers = options.synthetic_layers, .with_data = with_data});
}

DType kv_dtype(KvType type) {
  switch (type) {
  case KvType::f32: return DType::f32;
  case KvType::bf16: return DType::bf16;
  case KvType::int8: return DType::q8_0;
  case KvType::automatic:
  case KvType::f16: break;
  }
  return DType::f16;
}

int64_t sequence_bytes(const LoadOptions& options, const model::Model& model) {
  if (!model.diffusion || std::holds_alternative<model::MaskedDiffusion>(model.diffusion->rule))
    return 0;
  return int64_t{options.max_sequences} * model.diffusion->block * model.plan.n_vocab *
         int64_t{sizeof(float)};
}

backend::ProgramLimits program_limits(const LoadOptions& options, const model::Model& model,
                                      int32_t context) {
  backend::ProgramLimits limits;
  limits.max_rows = kPrefillRows;
  limits.max_outputs = kMaxDecodeRows;
  if (model.diffusion) {
    // Positions of a block are computed together, and the last block may go beyond the context.
    const int32_t block = model.diffusion->block;
    limits.max_outputs = std::max(block, std::min(options.max_sequences * block, kMaxBlockOutputs));
    context += block - 1;
  }
  limits.n_pages =
      options.max_sequences * ((context + limits.page_tokens - 1) / limits.page_tokens);
  limits.n_state_slots = options.max_sequences;
  limits.n_tape_rows = kMaxDecodeRows;
  limits.compute =
      options.compute == Compute::f32 ? backend::ComputeMode::f32 : backend::ComputeMode::fast;
  limits.trace = options.trace;
  return limits;
}

Result<Loaded> load(const LoadOptions& options) {
  const auto report = [&](const char* stage, double share) {
    if (options.progress) options.progress(stage, share);
  };
  KAPITSA_TRY(check_options(options));
  Loaded loaded;

  report("reading the file", 0.0);
  KAPITSA_ASSIGN(weights::Checkpoint file, open_model(options, true));
  loaded.file = std::make_unique<weights::Checkpoint>(std::move(file));
  KAPITSA_ASSIGN(model::Model model,
                 model::load_model(*loaded.file, {.kv_dtype = kv_dtype(options.kv_type)}));
  loaded.model = std::make_unique<model::Model>(std::move(model));
  KAPITSA_TRY(check_cache(options, loaded));
  report("reading the vocabulary", 0.2);
  KAPITSA_TRY(load_text(options, loaded));
  if (loaded.vocabulary->tokenizer.n_tokens() > loaded.model->plan.n_vocab) {
    return Error{ErrorCode::corrupt_file,
                 loaded.file->path().string() + ": the tokenizer has " +
                     std::to_string(loaded.vocabulary->tokenizer.n_tokens()) +
                     " tokens, the embedding only " + std::to_string(loaded.model->plan.n_vocab)};
  }

  report("loading the weights", 0.4);
  KAPITSA_ASSIGN(loaded.device, backend::open_device(options.backend, {.n_threads = options.threads,
                                                                       .force_isa = options.isa}));
  describe(loaded);
  KAPITSA_TRY(size(options, loaded));
  auto program = loaded.device->load(loaded.model->plan, loaded.limits);
  if (!program && program.error().code == ErrorCode::corrupt_file)
    return Error{ErrorCode::corrupt_file,
                 loaded.file->path().string() + ": " + program.error().message};
  KAPITSA_ASSIGN(loaded.program, std::move(program));
  // A pass is padded to the smallest bucket that holds it; larger ones than needed are not
  // prepared.
  for (const int32_t bucket : loaded.device->info().row_buckets) {
    if (!loaded.device->info().has_graphs) break;
    KAPITSA_TRY(loaded.program->capture(bucket));
    if (bucket >= options.max_sequences) break;
  }
  report("ready", 1.0);
  return loaded;
}

}  // namespace kapitsa::engine
