#include "backend/cpu/device.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/layout.h"
#include "backend/cpu/program.h"
#include "base/system.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>

namespace kapitsa::backend::cpu {
namespace {

class HostBuffer final : public DeviceBuffer {
public:
  explicit HostBuffer(HugeBlock block, int64_t size) : block_(std::move(block)), size_(size) {}
  int64_t size() const override { return size_; }
  Status write(int64_t offset, std::span<const std::byte> bytes) override {
    KAPITSA_TRY(check(offset, bytes.size()));
    if (!bytes.empty()) std::memcpy(block_.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  Status read(int64_t offset, std::span<std::byte> bytes) override {
    KAPITSA_TRY(check(offset, bytes.size()));
    if (!bytes.empty()) std::memcpy(bytes.data(), block_.data() + offset, bytes.size());
    return {};
  }

private:
  Status check(int64_t offset, size_t n) const {
    if (offset >= 0 && offset <= size_ && std::cmp_less_equal(n, size_ - offset)) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} bytes at {} of a buffer of {}", n, offset, size_)};
  }

  HugeBlock block_;
  int64_t size_;
};

class CpuDevice final : public Device {
public:
  CpuDevice(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, const MemoryInfo& memory)
      : kernels_(kernels), pool_(std::move(pool)) {
    info_ = {.backend = "cpu",
             .name = fmt::format("{} kernels, {} threads", kernels.name, pool_->n_threads()),
             .memory_total = memory.total_bytes,
             .memory_free = memory.available_bytes,
             .row_buckets = {},
             .has_graphs = false};
    // No padding pays here: every row count is its own bucket.
    for (int32_t rows = 1; rows <= kMaxDecodeRows; ++rows)
      info_.row_buckets.push_back(rows);
  }

  const DeviceInfo& info() const override { return info_; }

  bool supports(const plan::Plan& plan, const plan::Op& op) const override {
    return cpu::supports(plan, op);
  }

  Result<MemoryNeed> memory_need(const plan::Plan& plan, const ProgramLimits& limits) override {
    try {
      KAPITSA_TRY(plan::validate(plan));
      KAPITSA_ASSIGN(const plan::Plan lowered, plan::lower(plan, cpu::supports));
      KAPITSA_ASSIGN(const Fit fit, fit_memory(lowered, limits));
      return fit.need;
    } catch (const std::bad_alloc&) {
      return no_memory();
    }
  }

  Result<std::unique_ptr<Program>> load(const plan::Plan& plan,
                                        const ProgramLimits& limits) override {
    try {
      KAPITSA_TRY(plan::validate(plan));
      KAPITSA_ASSIGN(plan::Plan lowered, plan::lower(plan, cpu::supports));
      KAPITSA_ASSIGN(const Fit fit, fit_memory(lowered, limits));
      KAPITSA_TRY(check_memory(fit.need));
      KAPITSA_ASSIGN(
          std::unique_ptr<Program> program,
          CpuProgram::create(std::move(lowered), limits, kernels_, pool_, fit.copy_panels));
      return program;
    } catch (const std::bad_alloc&) {
      return no_memory();
    }
  }

  Result<std::unique_ptr<DeviceBuffer>> allocate(int64_t bytes) override {
    if (bytes < 0)
      return Error{ErrorCode::invalid_argument, fmt::format("a buffer of {} bytes", bytes)};
    KAPITSA_ASSIGN(HugeBlock block, HugeBlock::allocate(bytes, "a buffer"));
    return std::unique_ptr<DeviceBuffer>(new HostBuffer(std::move(block), bytes));
  }

private:
  static constexpr int32_t kMaxDecodeRows = 32;

  struct Fit {
    MemoryNeed need;
    bool copy_panels = true;
  };
  // With panels in memory if they fit, else without. By the memory that was free when the device
  // was opened, so that load() does what memory_need() said.
  Result<Fit> fit_memory(const plan::Plan& lowered, const ProgramLimits& limits) const {
    KAPITSA_ASSIGN(const Layout copied, make_layout(lowered, limits, pool_->n_threads(), true));
    if (copied.need.total() <= info_.memory_free) return Fit{copied.need, true};
    KAPITSA_ASSIGN(const Layout mapped, make_layout(lowered, limits, pool_->n_threads(), false));
    return Fit{mapped.need, false};
  }

  static Error no_memory() {
    return Error{ErrorCode::out_of_memory, "cpu: not enough memory to prepare the model"};
  }

  Status check_memory(const MemoryNeed& need) const {
    if (need.total() <= info_.memory_free) return {};
    const auto mib = [](int64_t bytes) { return bytes >> 20; };
    return Error{ErrorCode::out_of_memory,
                 fmt::format("cpu: needs {} MiB (weights {}, KV cache {}, states {}, buffers {}), "
                             "{} MiB are free: {} MiB are missing",
                             mib(need.total()), mib(need.weights), mib(need.kv_cache),
                             mib(need.recurrent), mib(need.buffers), mib(info_.memory_free),
                             mib(need.total() - info_.memory_free) + 1)};
  }

  const Kernels& kernels_;
  std::shared_ptr<ThreadPool> pool_;
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> open(const DeviceOptions& options) {
  if (options.n_threads < 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} threads, expected 0 (automatic) or more", options.n_threads)};
  }
  KAPITSA_ASSIGN(const Kernels* kernels, choose_kernels(options.force_isa));
  KAPITSA_ASSIGN(const MemoryInfo memory, memory_info());
  const int n_threads = options.n_threads > 0 ? options.n_threads : available_cores();
  try {
    return std::unique_ptr<Device>(
        new CpuDevice(*kernels, std::make_shared<ThreadPool>(n_threads), memory));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "cpu: not enough memory for the threads"};
  }
}

}  // namespace kapitsa::backend::cpu
