#include "engine/probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kapitsa::engine {

Result<Probe> Probe::open(backend::Device& device, const plan::Plan& plan,
                          const ProbeOptions& options) {
  backend::ProgramLimits limits;
  limits.max_rows = options.max_rows;
  limits.max_outputs = options.max_rows;
  limits.n_pages = (options.max_tokens + limits.page_tokens - 1) / limits.page_tokens;
  limits.compute = options.compute;
  Probe probe;
  KAPITSA_ASSIGN(probe.program_, device.load(plan, limits));
  KAPITSA_TRY(probe.program_->clear_state(0));
  probe.n_history_ = plan.n_history;
  probe.pages_.resize(static_cast<size_t>(limits.n_pages));
  std::iota(probe.pages_.begin(), probe.pages_.end(), 0);
  return probe;
}

Status Probe::run(plan::Phase phase, std::span<const int32_t> tokens) {
  const auto committed = static_cast<int32_t>(tokens_.size());
  n_rows_ = static_cast<int32_t>(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());

  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), committed);
  const std::vector<int32_t> sequences(tokens.size(), 0);
  std::vector<int32_t> history;
  for (const int32_t position : positions) {
    for (int32_t back = 1; back <= n_history_; ++back) {
      history.push_back(position >= back ? tokens_[static_cast<size_t>(position - back)] : -1);
    }
  }
  const plan::SequenceView view{.pages = pages_, .committed = committed, .replay = {}};
  plan::Pass pass;
  pass.phase = phase;
  pass.tokens = tokens;
  pass.positions = positions;
  pass.sequences = sequences;
  pass.slots = positions;  // page i is the i-th, so slots are positions
  pass.history = history;
  pass.outputs = rows;
  pass.views = std::span(&view, 1);
  KAPITSA_TRY(program_->run(pass));
  KAPITSA_TRY(program_->synchronise());
  return {};
}

Result<std::span<const float>> Probe::read(plan::BufferId buffer) {
  return program_->read(buffer, 0, n_rows_);
}

double relative_difference(std::span<const float> expected, std::span<const float> found,
                           int64_t width) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (expected.size() != found.size()) return kInfinite;
  double worst = 0.0;
  for (size_t row = 0; row < expected.size(); row += static_cast<size_t>(width)) {
    double largest = 0.0;
    double difference = 0.0;
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i) {
      if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
      if (std::isnan(expected[i]) || std::isnan(found[i])) return kInfinite;
      if (expected[i] == found[i]) continue;  // also equal infinities
      difference = std::max(difference, std::abs(double{expected[i]} - double{found[i]}));
    }
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i) {
      if (std::isfinite(expected[i])) largest = std::max(largest, std::abs(double{expected[i]}));
    }
    if (difference > 0.0) worst = std::max(worst, difference / largest);
  }
  return worst;
}

}  // namespace kapitsa::engine
