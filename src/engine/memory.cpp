#include "engine/memory.h"

#include "base/system.h"
#include "engine/loader.h"
#include "engine/traffic.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::engine {
namespace {

constexpr int32_t kShortContext = 4096;  // tokens; where the weights hardly fit
constexpr int32_t kRoundContext = 1024;  // tokens; a chosen context is a multiple of this
constexpr double kUsable = 0.9;          // of the free memory, for a context that was not asked for

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB",
                     static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30));
}

// What one model needs on one device, by context.
class Sizer {
public:
  Sizer(const LoadOptions& options, const model::Model& model, backend::Device& device,
        int64_t available)
      : options_(options), model_(model), device_(device), available_(available) {}

  Result<MemoryReport> report(int32_t context) const {
    KAPITSA_ASSIGN(const backend::MemoryNeed need,
                   device_.memory_need(model_.plan, program_limits(options_, model_, context)));
    MemoryReport report;
    report.backend = device_.info().backend + " (" + device_.info().name + ")";
    report.context = context;
    report.tables_in_file = row_table_bytes(model_.plan);
    report.weights_mapped = need.weights_mapped;
    report.weights_copied = need.weights;
    report.kv_cache = need.kv_cache;
    report.states = need.recurrent;
    report.buffers = need.buffers + sequence_bytes(options_, model_);
    report.available = available_;
    return report;
  }

  // The longest context, at most `most`, for which `fits` says so; 0: none. What is needed grows
  // with the context, so it bisects over pages.
  template <typename Fits>
  Result<int32_t> longest(int32_t most, const Fits& fits) const {
    KAPITSA_ASSIGN(const MemoryReport whole, report(most));
    if (fits(whole)) return most;
    int32_t low = 0;  // pages that fit
    int32_t high = most / plan::kGrid + 1;
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      KAPITSA_ASSIGN(const MemoryReport part, report(middle * plan::kGrid));
      (fits(part) ? low : high) = middle;
    }
    return low * plan::kGrid;
  }

  Result<int32_t> automatic(int32_t trained) const {
    const auto usable = static_cast<int64_t>(kUsable * static_cast<double>(available_));
    KAPITSA_ASSIGN(int32_t context, longest(trained, [&](const MemoryReport& report) {
                     return report.total() <= usable;
                   }));
    if (context == trained || (context > 0 && context <= kRoundContext)) return context;
    if (context > 0) return context / kRoundContext * kRoundContext;
    // The weights fit just so, or not at all.
    const int32_t most = std::min(trained, kShortContext);
    KAPITSA_ASSIGN(context,
                   longest(most, [](const MemoryReport& report) { return report.fits(); }));
    if (context > 0) return context;
    KAPITSA_ASSIGN(context, longest(most, [&](const MemoryReport& report) {
                     return report.allocated() <= usable;
                   }));
    return context > 0 ? context : std::min(trained, plan::kGrid);
  }

private:
  const LoadOptions& options_;
  const model::Model& model_;
  backend::Device& device_;
  int64_t available_;  // bytes
};

// What would fit in place of what does not.
std::string advice(const MemoryReport& report, const LoadOptions& options,
                   const model::Model& model) {
  if (report.largest_loadable > 0)
    return fmt::format("a context of {} tokens fits", report.largest_loadable);
  const int64_t weights = report.weights_copied;
  const int64_t rest = report.allocated() - weights;  // at the context that was asked for
  const int64_t room = report.available - rest;
  if (weights == 0 || room <= 0) return "no context fits: free some memory";
  const double share = static_cast<double>(room) / static_cast<double>(weights);
  if (!options.synthetic.empty())
    return fmt::format("about {} of its {} layers fit",
                       static_cast<int32_t>(share * model.n_layers), model.n_layers);
  const double bits = 8.0 * static_cast<double>(weights) /
                      static_cast<double>(std::max<int64_t>(model.n_parameters, 1));
  return fmt::format("no context fits; a file of the same model with about {:.1f} bits for each "
                     "weight does, this one has {:.1f}",
                     bits * share, bits);
}

}  // namespace

Result<Sizing> size_model(const LoadOptions& options, const model::Model& model,
                          backend::Device& device) {
  int64_t available = device.info().memory_free;
  if (available <= 0) {  // the reference does not say
    KAPITSA_ASSIGN(const MemoryInfo host, memory_info());
    available = host.available_bytes;
  }
  const Sizer sizer(options, model, device, available);
  const int32_t trained = model.context_trained;
  int32_t context = options.context;
  if (context == 0) {
    KAPITSA_ASSIGN(context, sizer.automatic(trained));
  }
  Sizing sizing;
  KAPITSA_ASSIGN(sizing.report, sizer.report(context));
  KAPITSA_ASSIGN(sizing.report.largest_context,
                 sizer.longest(trained, [](const MemoryReport& report) { return report.fits(); }));
  KAPITSA_ASSIGN(sizing.report.largest_loadable,
                 sizer.longest(trained, [](const MemoryReport& report) { return report.loads(); }));
  sizing.limits = program_limits(options, model, context);
  return sizing;
}

Status check_fits(const Sizing& sizing, const LoadOptions& options, const model::Model& model,
                  const std::string& name) {
  const MemoryReport& report = sizing.report;
  if (report.loads()) return {};
  return Error{
      ErrorCode::out_of_memory,
      fmt::format("{}: does not fit: needs {} (weights {}, keys and values of {} tokens {}, states "
                  "{}, buffers {}), {} are free: {} too much; {}",
                  name, gibibytes(report.allocated()), gibibytes(report.weights_copied),
                  int64_t{report.context} * options.max_sequences, gibibytes(report.kv_cache),
                  gibibytes(report.states), gibibytes(report.buffers), gibibytes(report.available),
                  gibibytes(report.allocated() - report.available),
                  advice(report, options, model))};
}

}  // namespace kapitsa::engine
