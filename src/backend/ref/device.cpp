#include "backend/ref/device.h"

#include "backend/ref/program.h"
#include "backend/weight_row.h"
#include "plan/expand.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace kapitsa::backend::ref {
namespace {

class RefBuffer final : public DeviceBuffer {
public:
  explicit RefBuffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {}
  int64_t size() const override { return std::ssize(bytes_); }

  Status write(int64_t offset, std::span<const std::byte> bytes) override {
    KAPITSA_TRY(check_range(offset, bytes.size()));
    if (!bytes.empty()) std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  Status read(int64_t offset, std::span<std::byte> bytes) override {
    KAPITSA_TRY(check_range(offset, bytes.size()));
    if (!bytes.empty()) std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
    return {};
  }

private:
  Status check_range(int64_t offset, size_t count) const {
    if (offset >= 0 && offset <= size() && static_cast<int64_t>(count) <= size() - offset)
      return {};
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("ref: {} bytes at offset {} of a buffer of {}", count, offset, size())};
  }
  std::vector<std::byte> bytes_;
};

Status check_types(const plan::Plan& plan) {
  for (const plan::Weight& weight : plan.weights()) {
    if (!can_decode(weight))
      return Error{ErrorCode::unsupported, "ref: weight " + weight.name + " is " +
                                               std::string(dtype_info(weight.dtype).name) +
                                               ", which it cannot decode"};
    if (weight.data.empty() && weight.expert_data.empty())
      return Error{ErrorCode::invalid_argument, "ref: weight " + weight.name + " has no data"};
  }
  for (const plan::State& state : plan.states()) {
    if (state.dtype != DType::f32 && state.dtype != DType::f16 && state.dtype != DType::bf16 &&
        state.dtype != DType::q8_0)
      return Error{ErrorCode::unsupported, "ref: state " + state.name + " is " +
                                               std::string(dtype_info(state.dtype).name) +
                                               "; it keeps f32, f16, bf16 and q8_0"};
  }
  return {};
}

class RefDevice final : public Device {
public:
  explicit RefDevice(bool chunked) : chunked_(chunked) {
    info_.backend = "ref";
    info_.name = "reference, double precision";
    info_.row_buckets = {1};
  }

  const DeviceInfo& info() const override { return info_; }

  bool supports(const plan::Plan& /*plan*/, const plan::Op& op) const override {
    return plan::is_primitive(op) && !std::holds_alternative<plan::Sample>(op);
  }

  Result<MemoryNeed> memory_need(const plan::Plan& plan, const ProgramLimits& limits) override {
    KAPITSA_ASSIGN(const plan::Plan lowered, lower(plan));
    return need_of(lowered, limits);
  }

  Result<std::unique_ptr<Program>> load(const plan::Plan& plan,
                                        const ProgramLimits& limits) override {
    KAPITSA_TRY(plan::validate(plan));
    KAPITSA_TRY(check_types(plan));
    KAPITSA_ASSIGN(plan::Plan lowered, lower(plan));
    const MemoryNeed need = need_of(lowered, limits);
    return std::unique_ptr<Program>(
        std::make_unique<RefProgram>(std::move(lowered), limits, need, chunked_));
  }

  Result<std::unique_ptr<DeviceBuffer>> allocate(int64_t bytes) override {
    if (bytes < 0)
      return Error{ErrorCode::invalid_argument, fmt::format("ref: a buffer of {} bytes", bytes)};
    return std::unique_ptr<DeviceBuffer>(std::make_unique<RefBuffer>(bytes));
  }

private:
  Result<plan::Plan> lower(const plan::Plan& plan) const {
    return plan::lower(plan, [this](const plan::Plan& context, const plan::Op& op) {
      return supports(context, op);
    });
  }

  static MemoryNeed need_of(const plan::Plan& lowered, const ProgramLimits& limits) {
    constexpr auto kValue = static_cast<int64_t>(sizeof(double));
    MemoryNeed need{.weights_mapped =
                        mapped_bytes(lowered, std::vector<bool>(lowered.weights().size()))};
    for (const plan::Buffer& buffer : lowered.buffers())
      need.buffers += buffer.width * buffer_rows(limits, buffer.rows) *
                      (buffer.dtype == DType::i32 ? int64_t{sizeof(int32_t)} : kValue);
    for (const plan::State& state : lowered.states()) {
      const int64_t bytes = state.width * state_entries(limits, state.kind) * kValue;
      (state.kind == plan::StateKind::kv_cache ? need.kv_cache : need.recurrent) += bytes;
    }
    return need;
  }

  bool chunked_;
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> open(const DeviceOptions& options) {
  return std::unique_ptr<Device>(std::make_unique<RefDevice>(options.force_isa == "chunked"));
}

}  // namespace kapitsa::backend::ref
