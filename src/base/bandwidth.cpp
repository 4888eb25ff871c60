#include "base/bandwidth.h"

#include "base/huge_block.h"
#include "base/system.h"
#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

namespace kapitsa {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLargest = int64_t{1} << 30;  // bytes
constexpr int64_t kUnit = int64_t{64} << 20;
constexpr int kMinPasses = 3;

// Eight independent sums, so that the additions never wait for each other.
uint64_t sum(std::span<const uint64_t> words) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j)
      sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t part : sums)
    total += part;
  return total;
}

}  // namespace

Result<Bandwidth> measure_bandwidth(int n_threads, double seconds) {
  KAPITSA_ASSIGN(const MemoryInfo memory, memory_info());
  const int64_t bytes = std::min(kLargest, memory.available_bytes / 4) / kUnit * kUnit;
  if (bytes < kUnit) {
    return Error{ErrorCode::out_of_memory,
                 "measuring memory bandwidth needs 256 MiB of free memory"};
  }
  // Huge pages, so that address translation does not hide the memory's own speed.
  KAPITSA_ASSIGN(const HugeBlock block, HugeBlock::allocate(bytes, "a bandwidth measurement"));
  const std::span<uint64_t> words(reinterpret_cast<uint64_t*>(block.data()),
                                  static_cast<size_t>(bytes) / sizeof(uint64_t));
  ThreadPool pool(n_threads);
  std::vector<uint64_t> totals(static_cast<size_t>(pool.n_threads()) * 8);  // a cache line each
  const auto part = [&](int thread, int n) {
    const Range range = partition(std::ssize(words), thread, n, 512);
    return words.subspan(static_cast<size_t>(range.begin),
                         static_cast<size_t>(range.end - range.begin));
  };
  // Written by the thread that will read it, so that it lies in the memory next to it.
  pool.run([&](int thread, int n) {
    const std::span<uint64_t> own = part(thread, n);
    if (!own.empty()) std::memset(own.data(), 1, own.size_bytes());
  });
  double best = 0.0;
  double spent = 0.0;
  for (int pass = 0; pass < kMinPasses || spent < seconds; ++pass) {
    const auto start = Clock::now();
    pool.run([&](int thread, int n) {
      totals[static_cast<size_t>(thread) * 8] += sum(part(thread, n));
    });
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    spent += taken;
    best = std::max(best, static_cast<double>(words.size_bytes()) / std::max(taken, 1e-9));
  }
  uint64_t total = 0;
  for (const uint64_t one : totals)
    total += one;
  // Uses the sums, which the compiler could otherwise leave out.
  if (total == 0) return Error{ErrorCode::device_failed, "memory reads back as zero"};
  return Bandwidth{pool.n_threads(), static_cast<int64_t>(words.size_bytes()), best};
}

}  // namespace kapitsa
