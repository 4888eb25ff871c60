// A run() publishes the task by raising epoch_ and waits for n_running_ to fall to zero. Workers
// sleep under park_mutex_; n_parked_ lets run() skip the mutex when nobody sleeps. epoch_ and
// n_parked_ are sequentially consistent: either run() sees the sleeper, or the sleeper sees the
// epoch.
#include "base/thread_pool.h"

#include "base/check.h"

#include <chrono>
#include <system_error>

namespace kapitsa {
namespace {

// About 10 to 40 microseconds: longer than the gap between two regions of one model step.
constexpr int kSpins = 1000;
// Then give the core away between looks, so that a machine with other work is not held up.
constexpr std::chrono::milliseconds kYieldTime{2};

void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins, then yields for as long as it takes. For waits that end when another running thread
// finishes its part.
template <typename Done>
void wait_until(Done&& done) {
  for (int i = 0; !done(); ++i) {
    if (i < kSpins)
      cpu_relax();
    else
      std::this_thread::yield();
  }
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  KAPITSA_CHECK(n_threads >= 1, "a thread pool needs at least one thread");
  workers_.reserve(static_cast<size_t>(n_threads - 1));
  try {
    for (int thread = 1; thread < n_threads; ++thread)
      workers_.emplace_back([this, thread] { work(thread); });
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
    // The threads that did start are a smaller, correct pool.
  }
  n_threads_ = 1 + static_cast<int>(workers_.size());
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  epoch_.fetch_add(1);
  {
    const std::lock_guard lock(park_mutex_);
    park_.notify_all();
  }
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::run_task(Task task, void* context) {
  KAPITSA_DCHECK(n_running_.load() == 0, "ThreadPool::run inside run");
  task_ = task;
  context_ = context;
  n_running_.store(n_threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  if (n_parked_.load() > 0) {
    const std::lock_guard lock(park_mutex_);
    park_.notify_all();
  }
  task(context, 0, n_threads_);
  wait_until([this] { return n_running_.load(std::memory_order_acquire) == 0; });
}

// Returns false when the pool is being destroyed.
bool ThreadPool::wait_for_next_epoch(uint32_t seen) {
  const auto changed = [&] { return epoch_.load() != seen; };
  for (int i = 0; i < kSpins && !changed(); ++i)
    cpu_relax();
  if (!changed()) {
    const auto deadline = std::chrono::steady_clock::now() + kYieldTime;
    while (!changed() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
  }
  if (!changed()) {
    std::unique_lock lock(park_mutex_);
    n_parked_.fetch_add(1);
    park_.wait(lock, changed);
    n_parked_.fetch_sub(1);
  }
  return !stopping_;
}

void ThreadPool::work(int thread) {
  for (uint32_t epoch = 0; wait_for_next_epoch(epoch); ++epoch) {
    task_(context_, thread, n_threads_);
    n_running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::barrier() {
  if (n_threads_ == 1) return;
  const uint32_t epoch = barrier_epoch_.load(std::memory_order_relaxed);
  if (n_at_barrier_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    n_at_barrier_.store(0, std::memory_order_relaxed);
    barrier_epoch_.store(epoch + 1, std::memory_order_release);
  } else {
    wait_until([&] { return barrier_epoch_.load(std::memory_order_acquire) != epoch; });
  }
}

}  // namespace kapitsa
