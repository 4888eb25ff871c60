#include "engine/traffic.h"

#include "backend/weight_row.h"

#include <algorithm>
#include <set>
#include <variant>

namespace kapitsa::engine {
namespace {

int64_t state_bytes(const plan::State& state) {
  return dtype_bytes(state.dtype, state.width).value_or(0);
}

// Codes, scales and biases of one row.
int64_t whole_row_bytes(const plan::Weight& weight) {
  const int64_t rows = weight.experts * weight.out;
  return plan::row_bytes(weight) +
         static_cast<int64_t>(weight.scales.size() + weight.biases.size()) / rows;
}

// Tables of which a token reads single rows, unless another op multiplies with them.
struct Tables {
  std::set<int32_t> weights;  // indexes
  int64_t bytes = 0;          // of the rows read
};

Tables find_tables(const plan::Plan& plan) {
  Tables tables;
  const auto add = [&](plan::WeightId id, int64_t n_rows) {
    tables.weights.insert(id.index);
    tables.bytes += n_rows * whole_row_bytes(plan.weight(id));
  };
  for (const plan::Step& step : plan.routines()[0].steps) {
    if (const auto* embed = std::get_if<plan::Embed>(&step.op)) add(embed->table, 1);
    if (const auto* rows = std::get_if<plan::EmbedRows>(&step.op)) add(rows->table, 1);
    if (const auto* ngram = std::get_if<plan::NgramEmbed>(&step.op))
      add(ngram->rows.table, std::ssize(ngram->rows.head_offsets));
  }
  for (const plan::Step& step : plan.routines()[0].steps) {
    if (const auto* head = std::get_if<plan::Head>(&step.op))
      tables.weights.erase(head->weight.index);
    if (const auto* linear = std::get_if<plan::Linear>(&step.op))
      tables.weights.erase(linear->projection.weight.index);
  }
  return tables;
}

int32_t experts_per_token(const plan::Plan& plan) {
  for (const plan::Step& step : plan.routines()[0].steps) {
    if (const auto* route = std::get_if<plan::Route>(&step.op)) return route->router.top_k;
    if (const auto* select = std::get_if<plan::SelectExperts>(&step.op))
      return select->router.top_k;
  }
  return 1;
}

int64_t weight_traffic(const plan::Plan& plan) {
  const Tables tables = find_tables(plan);
  const int32_t top_k = experts_per_token(plan);
  int64_t bytes = tables.bytes;
  for (size_t i = 0; i < plan.weights().size(); ++i) {
    if (tables.weights.contains(static_cast<int32_t>(i))) continue;
    const plan::Weight& weight = plan.weights()[i];
    const int64_t size = backend::stored_bytes(weight);
    bytes += weight.experts > 1 ? size / weight.experts * std::min<int64_t>(top_k, weight.experts)
                                : size;
  }
  return bytes;
}

int64_t cache_traffic(const plan::Plan& plan, int64_t position) {
  int64_t bytes = 0;
  for (const plan::Step& step : plan.routines()[0].steps) {
    const auto* fused = std::get_if<plan::Attention>(&step.op);
    const auto* attend = fused != nullptr ? &fused->attend : std::get_if<plan::Attend>(&step.op);
    if (attend == nullptr) continue;
    int64_t seen = position + 1;
    if (attend->window > 0) seen = std::min<int64_t>(seen, attend->window);
    if (attend->selection) {
      seen = std::min(seen, plan.buffer(attend->selection).width * attend->selection_block);
    }
    bytes += seen *
             (state_bytes(plan.state(attend->k_cache)) + state_bytes(plan.state(attend->v_cache)));
  }
  for (const plan::State& state : plan.states()) {
    if (state.kind == plan::StateKind::recurrent) bytes += 2 * state_bytes(state);
  }
  return bytes;
}

}  // namespace

int64_t row_table_bytes(const plan::Plan& plan) {
  std::set<int32_t> tables;  // indexes
  for (const plan::Routine& routine : plan.routines()) {
    for (const plan::Step& step : routine.steps) {
      if (const auto* ngram = std::get_if<plan::NgramEmbed>(&step.op))
        tables.insert(ngram->rows.table.index);
    }
  }
  int64_t bytes = 0;
  for (const int32_t index : tables)
    bytes += backend::stored_bytes(plan.weight({index}));
  return bytes;
}

int64_t decode_bytes(const plan::Plan& plan, int64_t position) {
  return weight_traffic(plan) + cache_traffic(plan, position);
}

}  // namespace kapitsa::engine
