// Everything that a loaded model is made of, bound together in the order in which it must be
// destroyed: the program before the model before the file.
#pragma once

#include "backend/backend.h"
#include "engine/vocabulary.h"
#include "kapitsa/engine.h"
#include "model/arch.h"
#include "text/chat_template.h"
#include "weights/checkpoint.h"

#include <memory>
#include <optional>

namespace kapitsa::engine {

struct Loaded {
  std::unique_ptr<weights::Checkpoint> file;
  std::unique_ptr<Vocabulary> vocabulary;
  std::optional<text::ChatTemplate> chat_template;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<backend::Device> device;
  std::unique_ptr<backend::Program> program;
  backend::ProgramLimits limits;
  ModelInfo info;
};

Result<Loaded> load(const LoadOptions& options);

// The parts of load() that inspect() and verify() share.
// with_data: whether a synthetic model gets its random weights, or zeros that take no memory.
Result<weights::Checkpoint> open_model(const LoadOptions& options, bool with_data);
Status check_options(const LoadOptions& options);
DType kv_dtype(KvType type);
// Limits of a program of the model whose sequences have `context` tokens each.
backend::ProgramLimits program_limits(const LoadOptions& options, const model::Model& model,
                                      int32_t context);
// What the device thread itself keeps for live sequences: the conditions of their canvases.
int64_t sequence_bytes(const LoadOptions& options, const model::Model& model);

}  // namespace kapitsa::engine
