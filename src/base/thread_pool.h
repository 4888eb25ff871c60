// Fork-join threads for the CPU backend, and the static split of work among them. `run` calls a
// function once on every thread; the caller is thread 0. It owns no queue and no tasks: a step of a
// model is hundreds of short parallel regions, so a region must cost microseconds. Nothing here
// allocates after construction, and which thread does which part is fixed, so that results cannot
// depend on timing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace kapitsa {

// One thread at a time may call run(); the function may call barrier() but not run(), and must not
// throw. Idle workers spin for some microseconds, then yield, then sleep until the next run().
class ThreadPool {
public:
  // n_threads counts the caller. Where the system refuses threads, n_threads() is what it gave.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // Calls f(thread, n_threads) on every thread and returns when all have finished. What the caller
  // wrote before is visible to f; what f wrote is visible after.
  template <typename F>
  void run(F&& f) {
    if (n_threads_ == 1) {
      f(0, 1);
      return;
    }
    using Function = std::remove_reference_t<F>;
    const Task task = [](void* context, int thread, int n_threads) {
      (*static_cast<Function*>(context))(thread, n_threads);
    };
    run_task(task, const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

  // Inside run(): returns when all threads have reached it. Every thread must call it equally
  // often.
  void barrier();

private:
  using Task = void (*)(void* context, int thread, int n_threads);

  void run_task(Task task, void* context);
  void work(int thread);
  bool wait_for_next_epoch(uint32_t seen);

  int n_threads_ = 1;
  Task task_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;

  // Written by different threads at different times, hence one cache line each.
  alignas(64) std::atomic<uint32_t> epoch_{0};  // raised once for each run()
  alignas(64) std::atomic<int> n_running_{0};   // workers that have not finished this run()
  alignas(64) std::atomic<int> n_at_barrier_{0};
  alignas(64) std::atomic<uint32_t> barrier_epoch_{0};

  alignas(64) std::atomic<int> n_parked_{0};
  std::mutex park_mutex_;
  std::condition_variable park_;
  std::vector<std::thread> workers_;
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// The part of 0..n-1 that belongs to `thread`: consecutive, in thread order, boundaries at
// multiples of `grain`, sizes that differ by at most one grain. Depends on nothing else.
inline Range partition(int64_t n, int thread, int n_threads, int64_t grain = 1) {
  const int64_t n_grains = (n + grain - 1) / grain;
  const int64_t begin = n_grains * thread / n_threads * grain;
  const int64_t end = n_grains * (thread + 1) / n_threads * grain;
  return {begin < n ? begin : n, end < n ? end : n};
}

}  // namespace kapitsa
