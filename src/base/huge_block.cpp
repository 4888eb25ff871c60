#include "base/huge_block.h"

#include <sys/mman.h>

#include <fmt/format.h>

#include <utility>

namespace kapitsa {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;  // bytes

}  // namespace

int64_t HugeBlock::footprint(int64_t bytes) {
  return round_up(bytes, bytes < kHugePage ? 4096 : kHugePage);
}

Result<HugeBlock> HugeBlock::allocate(int64_t bytes, const char* what) {
  return map(bytes, PROT_READ | PROT_WRITE, what);
}

// The system counts writable mappings alone against its memory.
Result<HugeBlock> HugeBlock::zeros(int64_t bytes, const char* what) {
  return map(bytes, PROT_READ, what);
}

Result<HugeBlock> HugeBlock::map(int64_t bytes, int protection, const char* what) {
  HugeBlock block;
  if (bytes == 0) return block;
  // A huge page needs its alignment: take one page more and unmap the ends.
  const int64_t size = footprint(bytes);
  const int64_t mapped = size + kHugePage;
  void* raw =
      mmap(nullptr, static_cast<size_t>(mapped), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return Error{ErrorCode::out_of_memory,
                 fmt::format("the system refused {} MiB for {}", bytes >> 20, what)};
  }
  auto* begin = static_cast<std::byte*>(raw);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(raw));
  const int64_t head = round_up(address, kHugePage) - address;
  if (head > 0) munmap(begin, static_cast<size_t>(head));
  if (mapped > head + size) munmap(begin + head + size, static_cast<size_t>(mapped - head - size));
  block.data_ = begin + head;
  block.size_ = size;
#ifdef MADV_HUGEPAGE
  madvise(block.data_, static_cast<size_t>(size), MADV_HUGEPAGE);
#endif
  return block;
}

HugeBlock::HugeBlock(HugeBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBlock& HugeBlock::operator=(HugeBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeBlock::~HugeBlock() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

}  // namespace kapitsa
