#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace kapitsa {
namespace {

class ThreadPools : public testing::TestWithParam<int> {};

TEST_P(ThreadPools, run_calls_every_thread_once) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.n_threads(), GetParam());
  std::vector<int> calls(static_cast<size_t>(pool.n_threads()));
  for (int i = 0; i < 500; ++i) {
    pool.run([&](int thread, int n_threads) {
      EXPECT_EQ(n_threads, GetParam());
      ++calls[static_cast<size_t>(thread)];
    });
  }
  EXPECT_EQ(calls, std::vector<int>(calls.size(), 500));
}

TEST_P(ThreadPools, the_caller_is_thread_zero) {
  ThreadPool pool(GetParam());
  std::thread::id id;
  pool.run([&](int thread, int) {
    if (thread == 0) id = std::this_thread::get_id();
  });
  EXPECT_EQ(id, std::this_thread::get_id());
}

// Each round reads what all threads wrote in the round before; a thread that passes the barrier
// early reads a stale sum (and is a race that ThreadSanitizer reports).
TEST_P(ThreadPools, a_barrier_orders_the_rounds_of_a_run) {
  ThreadPool pool(GetParam());
  const auto n = static_cast<size_t>(pool.n_threads());
  std::vector<int64_t> current(n, 1), next(n);
  pool.run([&](int thread, int n_threads) {
    const auto self = static_cast<size_t>(thread);
    for (int round = 0; round < 200; ++round) {
      const int64_t sum = std::accumulate(current.begin(), current.end(), int64_t{0});
      next[self] = sum % 1009 + thread;
      pool.barrier();
      current[self] = next[self];
      pool.barrier();
      ASSERT_EQ(n_threads, GetParam());
    }
  });
  std::vector<int64_t> expected(n, 1);
  for (int round = 0; round < 200; ++round) {
    const int64_t sum = std::accumulate(expected.begin(), expected.end(), int64_t{0});
    for (size_t i = 0; i < n; ++i)
      expected[i] = sum % 1009 + static_cast<int64_t>(i);
  }
  EXPECT_EQ(current, expected);
}

TEST_P(ThreadPools, workers_that_sleep_wake_up_again) {
  ThreadPool pool(GetParam());
  int64_t total = 0;
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // longer than workers stay awake
    std::vector<int64_t> part(static_cast<size_t>(pool.n_threads()));
    pool.run([&](int thread, int) { part[static_cast<size_t>(thread)] = thread + 1; });
    total += std::accumulate(part.begin(), part.end(), int64_t{0});
  }
  EXPECT_EQ(total, 5 * GetParam() * (GetParam() + 1) / 2);
}

TEST_P(ThreadPools, an_unused_pool_shuts_down) {
  for (int i = 0; i < 20; ++i)
    ThreadPool pool(GetParam());
  ThreadPool asleep(GetParam());
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPools, testing::Values(1, 2, 3, 8));

TEST(Partition, covers_everything_once_in_order_at_the_grain) {
  for (const int64_t n : {0, 1, 5, 16, 17, 100, 151936}) {
    for (const int n_threads : {1, 2, 3, 7, 64}) {
      for (const int64_t grain : {1, 4, 16, 33}) {
        int64_t next = 0, smallest = n, largest = 0;
        for (int thread = 0; thread < n_threads; ++thread) {
          const Range range = partition(n, thread, n_threads, grain);
          ASSERT_EQ(range.begin, next);
          ASSERT_LE(range.begin, range.end);
          ASSERT_TRUE(range.end % grain == 0 || range.end == n);
          next = range.end;
          smallest = std::min(smallest, range.end - range.begin);
          largest = std::max(largest, range.end - range.begin);
        }
        ASSERT_EQ(next, n);
        ASSERT_LT(largest - smallest, 2 * grain);
      }
    }
  }
}

}  // namespace
}  // namespace kapitsa
