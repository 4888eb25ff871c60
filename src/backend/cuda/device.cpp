#include "backend/cuda/device.h"

#include "backend/cuda/layout.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/probe.h"
#include "backend/cuda/program.h"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace kapitsa::backend::cuda {
namespace {

class CudaBuffer final : public DeviceBuffer {
public:
  CudaBuffer(DeviceBlock block, int64_t size) : block_(std::move(block)), size_(size) {}
  int64_t size() const override { return size_; }
  Status write(int64_t offset, std::span<const std::byte> bytes) override {
    KAPITSA_TRY(check_range(offset, bytes.size()));
    return check(
        cudaMemcpy(block_.get() + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
        "writing a buffer");
  }
  Status read(int64_t offset, std::span<std::byte> bytes) override {
    KAPITSA_TRY(check_range(offset, bytes.size()));
    return check(
        cudaMemcpy(bytes.data(), block_.get() + offset, bytes.size(), cudaMemcpyDeviceToHost),
        "reading a buffer");
  }

private:
  Status check_range(int64_t offset, size_t n) const {
    if (offset >= 0 && offset <= size_ && std::cmp_less_equal(n, size_ - offset)) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cuda: {} bytes at {} of a buffer of {}", n, offset, size_)};
  }

  DeviceBlock block_;
  int64_t size_;
};

class CudaDevice final : public Device {
public:
  explicit CudaDevice(DeviceInfo info) : info_(std::move(info)) {}

  const DeviceInfo& info() const override { return info_; }

  bool supports(const plan::Plan& plan, const plan::Op& op) const override {
    return cuda::supports(plan, op, ComputeMode::fast) ||
           cuda::supports(plan, op, ComputeMode::f32);
  }

  Result<MemoryNeed> memory_need(const plan::Plan& plan, const ProgramLimits& limits) override {
    KAPITSA_TRY(plan::validate(plan));
    KAPITSA_ASSIGN(const plan::Plan lowered, lower(plan, limits.compute));
    KAPITSA_ASSIGN(const Layout layout, make_layout(lowered, limits));
    return layout.need;
  }

  Result<std::unique_ptr<Program>> load(const plan::Plan& plan,
                                        const ProgramLimits& limits) override {
    try {
      KAPITSA_TRY(plan::validate(plan));
      KAPITSA_ASSIGN(plan::Plan lowered, lower(plan, limits.compute));
      KAPITSA_ASSIGN(const Layout layout, make_layout(lowered, limits));
      KAPITSA_TRY(check_memory(layout.need));
      KAPITSA_ASSIGN(std::unique_ptr<Program> program,
                     CudaProgram::create(std::move(lowered), limits, info_.row_buckets));
      return program;
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::out_of_memory, "cuda: not enough memory to prepare the model"};
    }
  }

  Result<std::unique_ptr<DeviceBuffer>> allocate(int64_t bytes) override {
    if (bytes < 0)
      return Error{ErrorCode::invalid_argument, fmt::format("cuda: a buffer of {} bytes", bytes)};
    KAPITSA_ASSIGN(DeviceBlock block, allocate_device(bytes, "a buffer"));
    return std::unique_ptr<DeviceBuffer>(new CudaBuffer(std::move(block), bytes));
  }

private:
  static Result<plan::Plan> lower(const plan::Plan& plan, ComputeMode compute) {
    return plan::lower(plan, [compute](const plan::Plan& context, const plan::Op& op) {
      return cuda::supports(context, op, compute);
    });
  }

  static Status check_memory(const MemoryNeed& need) {
    size_t free = 0;
    size_t total = 0;
    KAPITSA_TRY(check(cudaMemGetInfo(&free, &total), "reading the free memory"));
    const auto available = static_cast<int64_t>(free);
    if (need.total() <= available) return {};
    const auto mib = [](int64_t bytes) { return bytes >> 20; };
    return Error{ErrorCode::out_of_memory,
                 fmt::format("cuda: needs {} MiB (weights {}, KV cache {}, states {}, buffers {}), "
                             "{} MiB are free on the card: {} MiB are missing",
                             mib(need.total()), mib(need.weights), mib(need.kv_cache),
                             mib(need.recurrent), mib(need.buffers), mib(available),
                             mib(need.total() - available) + 1)};
  }

  DeviceInfo info_;
};

Error unsupported(std::string message) {
  return {ErrorCode::unsupported, "cuda: " + std::move(message)};
}

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// Says why there is nothing to open; the runtime has one code for an old and for no driver.
Status check_driver(cudaError_t code, int n_devices) {
  if (code == cudaSuccess && n_devices > 0) return {};
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  cudaGetLastError();
  if (driver == 0) return unsupported("no NVIDIA driver is installed on this machine");
  if (code == cudaErrorInsufficientDriver)
    return unsupported(fmt::format("the NVIDIA driver supports CUDA {}, this build needs {}: "
                                   "update the driver",
                                   version(driver), version(CUDART_VERSION / 1000 * 1000)));
  if (code == cudaSuccess || code == cudaErrorNoDevice)
    return unsupported("no NVIDIA card is visible on this machine");
  return unsupported(fmt::format("the NVIDIA driver answers: {}", cudaGetErrorString(code)));
}

constexpr int kOldestMajor = 8;  // compute capability 8.0

// The card with the most memory among those that are new enough.
Result<int> choose_card(int n_devices) {
  int best = -1;
  size_t most = 0;
  std::string old;
  for (int i = 0; i < n_devices; ++i) {
    cudaDeviceProp card = {};
    KAPITSA_TRY(check(cudaGetDeviceProperties(&card, i), "reading a card's properties"));
    if (card.major < kOldestMajor) {
      old = fmt::format("{} has compute capability {}.{}, expected {}.0 or newer", card.name,
                        card.major, card.minor, kOldestMajor);
    } else if (best < 0 || card.totalGlobalMem > most) {
      best = i;
      most = card.totalGlobalMem;
    }
  }
  if (best < 0) return unsupported(old);
  return best;
}

}  // namespace

Result<std::unique_ptr<Device>> open(const DeviceOptions& options) {
  if (!options.force_isa.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cuda: an instruction set ('{}') is for the CPU", options.force_isa)};
  int n_devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&n_devices);
  KAPITSA_TRY(check_driver(code, n_devices));
  KAPITSA_ASSIGN(const int index, choose_card(n_devices));
  KAPITSA_TRY(check(cudaSetDevice(index), "opening the card"));
  cudaDeviceProp card = {};
  KAPITSA_TRY(check(cudaGetDeviceProperties(&card, index), "reading the card's properties"));
  if (find_kernel_image() != cudaSuccess) {
    cudaGetLastError();
    return unsupported(fmt::format("this build has no kernels for {} (compute capability {}.{})",
                                   card.name, card.major, card.minor));
  }
  size_t free = 0;
  size_t total = 0;
  KAPITSA_TRY(check(cudaMemGetInfo(&free, &total), "reading the free memory"));
  DeviceInfo info;
  info.backend = "cuda";
  info.name = fmt::format("{}, compute capability {}.{}, {} multiprocessors", card.name, card.major,
                          card.minor, card.multiProcessorCount);
  info.memory_total = static_cast<int64_t>(total);
  info.memory_free = static_cast<int64_t>(free);
  info.row_buckets = {8, 16, 32};
  info.has_graphs = true;
  return std::unique_ptr<Device>(new CudaDevice(std::move(info)));
}

}  // namespace kapitsa::backend::cuda
