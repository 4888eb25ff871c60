// Passes over the logits of one row: peak, sum of exponentials, most likely tokens. All tokens of a
// row stand in one total order, logit descending and then id ascending, and every truncation of the
// sampler keeps the first n of it. Results depend on the logits only: sums have a fixed order, and
// the exponential is a fixed polynomial, so that no libm version can move a top-p boundary.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kapitsa::sample {

struct Candidate {
  float logit = 0;
  int32_t token = 0;
};

// The total order.
inline bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

struct Peak {
  Candidate best;  // the first token of the total order; undefined with a NaN
  bool has_nan = false;
};
// Precondition: at least one logit.
Peak find_peak(std::span<const float> logits);

// e^x for x <= 0 to a relative 3e-7; below -87, where nothing counts any more, e^-87. x = n log 2 +
// r with |r| <= log(2) / 2, and the Taylor sum of e^r up to r^7 / 7!. Inline, so that loops over it
// become vector code.
inline float exp_negative(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  // Clamped as integers: a float comparison keeps the compiler from making vector code.
  const int32_t magnitude = std::bit_cast<int32_t>(x) & 0x7FFFFFFF;
  const float clamped = -std::bit_cast<float>(magnitude < 0x42AE0000 ? magnitude : 0x42AE0000);
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // log 2 in two parts, so that n times the first is exact.
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound)) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + power);
}

// The sum of e^((logit - max) * scale) in double.
double sum_of_exp(std::span<const float> logits, float max, float scale);

// The first k tokens of the total order, sorted. Keeps `out`'s memory.
void take_first(std::span<const float> logits, size_t k, std::vector<Candidate>& out);

// How many candidates of the total order it takes to reach `mass` in the sum of
// e^((logit - max) * scale), added in that order; candidates.size() + 1 when all do not. Sorts as
// many candidates as it counts.
size_t sort_until(std::span<Candidate> candidates, float max, float scale, double mass);

// The fewest first tokens of the total order that have the share `top_p` of the sum of
// e^((logit - max) * scale) over all logits, at least one; sorted. Keeps `out`'s memory.
void take_nucleus(std::span<const float> logits, float max, float scale, float top_p,
                  std::vector<Candidate>& out);

}  // namespace kapitsa::sample
