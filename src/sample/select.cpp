// The loops over lanes are written so that the compiler turns them into vector code without being
// allowed to reorder floating-point operations.
#include "sample/select.h"

#include <algorithm>
#include <limits>

namespace kapitsa::sample {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kBlock = 1024;  // logits; a block stays in the nearest cache

// The largest logit of a block; sets has_nan.
float block_max(std::span<const float> block, bool& has_nan) {
  float best[kLanes];
  uint32_t nan[kLanes] = {};
  std::fill_n(best, kLanes, -std::numeric_limits<float>::infinity());
  const auto add = [&](size_t lane, float x) {
    best[lane] = x > best[lane] ? x : best[lane];
    nan[lane] |= x != x ? 1u : 0u;
  };
  size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      add(lane, block[i + lane]);
  }
  for (; i < block.size(); ++i)
    add(0, block[i]);
  for (const uint32_t n : nan)
    has_nan |= n != 0;
  return *std::max_element(best, best + kLanes);
}

}  // namespace

Peak find_peak(std::span<const float> logits) {
  Peak peak;
  peak.best.logit = -std::numeric_limits<float>::infinity();
  size_t best_block = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    const float max = block_max(block, peak.has_nan);
    if (max <= peak.best.logit) continue;
    peak.best.logit = max;
    best_block = begin;
  }
  size_t token = best_block;
  while (token + 1 < logits.size() && logits[token] != peak.best.logit)
    ++token;
  peak.best.token = static_cast<int32_t>(token);
  return peak;
}

double sum_of_exp(std::span<const float> logits, float max, float scale) {
  double sums[kLanes] = {};
  float terms[kBlock];
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < n; ++i)
      terms[i] = exp_negative((logits[begin + i] - max) * scale);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += static_cast<double>(terms[i + lane]);
    for (; i < n; ++i)
      sums[0] += static_cast<double>(terms[i]);
  }
  double sum = 0;
  for (const double lane : sums)
    sum += lane;
  return sum;
}

// Collects whatever is above the k-th best so far, and cuts back to k when the buffer is full.
void take_first(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  out.clear();
  k = std::min(k, logits.size());
  if (k == 0) return;
  const size_t capacity = k + std::max<size_t>(k, 1024);
  out.reserve(capacity);
  const auto cut = [&] {
    std::nth_element(out.begin(), out.begin() + static_cast<int64_t>(k) - 1, out.end(), before);
    out.resize(k);
  };
  // Ids rise, so a later token with the logit of the k-th best is behind it in the order.
  float threshold = -std::numeric_limits<float>::infinity();
  bool cut_once = false;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (!(logits[token] > threshold) && cut_once) continue;
    out.push_back({logits[token], static_cast<int32_t>(token)});
    if (out.size() == capacity) {
      cut();
      threshold = out[k - 1].logit;
      cut_once = true;
    }
  }
  if (out.size() > k) cut();
  std::sort(out.begin(), out.end(), before);
}

size_t sort_until(std::span<Candidate> candidates, float max, float scale, double mass) {
  double sum = 0;
  size_t sorted = 0;
  for (size_t chunk = 128; sorted < candidates.size(); chunk *= 2) {
    const size_t end = std::min(candidates.size(), sorted + chunk);
    const auto rest = candidates.subspan(sorted);
    const auto middle = rest.begin() + static_cast<int64_t>(end - sorted);
    if (middle != rest.end()) std::nth_element(rest.begin(), middle, rest.end(), before);
    std::sort(rest.begin(), middle, before);
    for (; sorted < end; ++sorted) {
      sum += static_cast<double>(exp_negative((candidates[sorted].logit - max) * scale));
      if (sum >= mass) return sorted + 1;
    }
  }
  return candidates.size() + 1;
}

// Tokens above a threshold are the first of the total order, so a narrow band below the maximum is
// enough when it holds the mass; only flat distributions need wider bands.
void take_nucleus(std::span<const float> logits, float max, float scale, float top_p,
                  std::vector<Candidate>& out) {
  const double mass = static_cast<double>(top_p) * sum_of_exp(logits, max, scale);
  for (const float band : {6.0f, 12.0f, 24.0f, 87.0f}) {
    const float threshold = max - band / scale;
    out.clear();
    for (size_t token = 0; token < logits.size(); ++token) {
      if (logits[token] >= threshold) out.push_back({logits[token], static_cast<int32_t>(token)});
    }
    const size_t n = sort_until(out, max, scale, mass);
    if (n <= out.size()) {
      out.resize(n);
      return;
    }
  }
  // What is missing is the rounding of the sum; every token inside the widest band stays.
}

}  // namespace kapitsa::sample
