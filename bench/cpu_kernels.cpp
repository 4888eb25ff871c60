// The integer kernels of the CPU backend, one thread: time for each weight, as bytes of weights per
// second of processor time, beside the read bandwidth of the machine. Not a test: it prints
// numbers.
//
//   bench_cpu_kernels [isa] [MiB of weights]
#include "backend/cpu/isa.h"
#include "backend/cpu/panels.h"
#include "base/huge_block.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "support/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace kapitsa::bench {
namespace {

using namespace backend::cpu;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename F>
double best_seconds(int repeats, F&& f) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const double start = seconds_now();
    f();
    best = std::min(best, seconds_now() - start);
  }
  return best;
}

double read_bandwidth(ThreadPool& pool, const HugeBlock& block) {
  const auto* words = reinterpret_cast<const uint64_t*>(block.data());
  std::atomic<uint64_t> sink = 0;
  const double seconds = best_seconds(9, [&] {
    pool.run([&](int thread, int n_threads) {
      const Range range = partition(block.size() / 8, thread, n_threads, 8);
      uint64_t sums[8] = {};
      for (int64_t i = range.begin; i < range.end; i += 8) {
        for (int64_t j = 0; j < 8; ++j)
          sums[j] += words[i + j];
      }
      sink += sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
    });
  });
  return static_cast<double>(block.size()) / seconds;
}

struct Case {
  const char* name;
  Format format;
};

void measure(ThreadPool& pool, const Kernels& kernels, const Case& c, HugeBlock& block,
             double bandwidth) {
  constexpr int64_t kIn = 2048;
  constexpr int kMaxRows = 48;
  const int64_t one_panel = panel_bytes(c.format, kIn);
  const int64_t n_tiles = block.size() / one_panel;
  std::vector<float> x(kIn);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 37) - 18.0F;
  const int64_t record_bytes = activation_layout(kIn).bytes;
  std::vector<uint8_t> records(static_cast<size_t>(kMaxRows * record_bytes));
  std::vector<float> out(static_cast<size_t>(kMaxRows * n_tiles * kPanelRows));
  std::vector<const uint8_t*> record_of;
  std::vector<float*> out_of;
  for (int r = 0; r < kMaxRows; ++r) {
    record_of.push_back(records.data() + r * record_bytes);
    out_of.push_back(out.data() + r * n_tiles * kPanelRows);
  }
  fmt::print("{:8}", c.name);
  for (const int planes : {2, 1}) {
    for (int r = 0; r < kMaxRows; ++r)
      kernels.quantise(x.data(), kIn, 0, kIn, planes, records.data() + r * record_bytes);
    for (const int rows : {1, 2, 4, 8, kMaxRows}) {
      const PackedLinear all = {.panels = reinterpret_cast<const uint8_t*>(block.data()),
                                .format = c.format,
                                .n_out = n_tiles * kPanelRows,
                                .k = kIn,
                                .x = record_of.data(),
                                .planes = planes,
                                .n_rows = rows,
                                .out = out_of.data()};
      const int64_t used = rows > 8 ? std::min<int64_t>(n_tiles, 256) : n_tiles;
      const double seconds = best_seconds(7, [&] {
        pool.run([&](int thread, int n_threads) {
          const Range tiles = partition(used, thread, n_threads);
          PackedLinear l = all;
          l.first_tile = tiles.begin;
          l.end_tile = tiles.end;
          kernels.packed_linear(l);
        });
      });
      const auto n = static_cast<double>(used);
      if (rows > 8) {
        fmt::print(" {:7.1f} GMAC/s |", n * 16 * kIn * rows / seconds * 1e-9);
      } else {
        const double rate = n * static_cast<double>(one_panel) / seconds;
        fmt::print(" {:5.1f} ({:3.0f} %)", rate * 1e-9, 100 * rate / bandwidth);
      }
    }
  }
  fmt::print("\n");
}

int run(int argc, char** argv) {
  const auto kernels = choose_kernels(argc > 2 ? argv[2] : "");
  if (!kernels) {
    fmt::print(stderr, "{}\n", kernels.error().message);
    return 1;
  }
  ThreadPool pool(argc > 1 ? std::max(1, std::atoi(argv[1])) : available_cores());
  const int64_t mib = argc > 3 ? std::atoll(argv[3]) : 256;
  auto block = HugeBlock::allocate(mib << 20, "the benchmark");
  if (!block) return 1;
  std::memset(block->data(), 0x11, static_cast<size_t>(block->size()));
  const double bandwidth = read_bandwidth(pool, *block);
  fmt::print("{} kernels, k 2048, {} MiB, {} threads; plain reads {:.1f} GB/s\n"
             "GB/s of weights (share of that) for 1, 2, 4, 8 rows and GMAC/s for 48; two planes | "
             "one plane\n",
             (*kernels)->name, mib, pool.n_threads(), bandwidth * 1e-9);
  for (const Case& c :
       {Case{"q4_0", Format::q4_0}, Case{"q4_1", Format::q4_1}, Case{"q5_0", Format::q5_0},
        Case{"q5_1", Format::q5_1}, Case{"q8_0", Format::q8_0}, Case{"q4_k", Format::q4_k},
        Case{"q5_k", Format::q5_k}, Case{"q6_k", Format::q6_k}, Case{"iq4_nl", Format::iq4_nl},
        Case{"iq4_xs", Format::iq4_xs}, Case{"mxfp4", Format::mxfp4}, Case{"nvfp4", Format::nvfp4},
        Case{"q2_k", Format::q2_k}, Case{"q3_k", Format::q3_k}, Case{"affine4", Format::affine4},
        Case{"affine8", Format::affine8}})
    measure(pool, **kernels, c, *block, bandwidth);
  return 0;
}

}  // namespace
}  // namespace kapitsa::bench

int main(int argc, char** argv) {
  return kapitsa::bench::run(argc, argv);
}
