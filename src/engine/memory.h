// How much memory a model takes on a device, and how long a context fits beside it. One computation
// for load(), which refuses what does not fit before it allocates anything, and for inspect(),
// which tells. The backend counts its own (backend::MemoryNeed); nothing here knows how.
#pragma once

#include "backend/backend.h"
#include "kapitsa/inspect.h"
#include "model/arch.h"

namespace kapitsa::engine {

struct Sizing {
  MemoryReport report;
  backend::ProgramLimits limits;
};

// With options.context, or with the longest context that leaves a tenth of the free memory, at most
// what the model was trained for. Where the weights alone do not fit, which makes each token wait
// for the disk, a short one.
Result<Sizing> size_model(const LoadOptions& options, const model::Model& model,
                          backend::Device& device);

// out_of_memory where the report does not load: how much is missing, and what would fit. `name` is
// what the line starts with.
Status check_fits(const Sizing& sizing, const LoadOptions& options, const model::Model& model,
                  const std::string& name);

}  // namespace kapitsa::engine
