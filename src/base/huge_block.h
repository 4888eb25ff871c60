// Zeroed memory in huge pages, for weights, caches and buffers: with 4 KiB pages a decode step
// spends much of its time on address translation.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>

namespace kapitsa {

// Owns one block, aligned to 64 bytes at least. Untouched parts take no memory.
class HugeBlock {
public:
  // out_of_memory, naming `what`, when the system refuses.
  static Result<HugeBlock> allocate(int64_t bytes, const char* what);

  // Zeros that can only be read and never take memory, however many.
  static Result<HugeBlock> zeros(int64_t bytes, const char* what);

  // Bytes that a block of this size takes.
  static int64_t footprint(int64_t bytes);

  HugeBlock() = default;
  HugeBlock(HugeBlock&& other) noexcept;
  HugeBlock& operator=(HugeBlock&& other) noexcept;
  HugeBlock(const HugeBlock&) = delete;
  HugeBlock& operator=(const HugeBlock&) = delete;
  ~HugeBlock();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

private:
  static Result<HugeBlock> map(int64_t bytes, int protection, const char* what);

  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Sizes inside a block are rounded up to this, so that parts never share a cache line.
inline constexpr int64_t kLine = 64;  // bytes
constexpr int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace kapitsa
