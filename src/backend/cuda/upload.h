// Copies weights from the mapped file to the card: through two page-locked chunks, one filled by
// several threads while the other is on its way.
#pragma once

#include "backend/cuda/memory.h"
#include "base/thread_pool.h"

#include <array>
#include <cstddef>
#include <span>

namespace kapitsa::backend::cuda {

class Uploader {
public:
  static Result<Uploader> create(cudaStream_t stream);

  Status copy(std::byte* to, std::span<const std::byte> from);
  // Waits until everything has arrived.
  Status finish();

private:
  static constexpr size_t kChunk = size_t{64} << 20;  // bytes

  Uploader() = default;
  Status next_chunk();

  struct Chunk {
    PinnedBlock memory;
    Event sent;
    bool on_its_way = false;
  };
  std::array<Chunk, 2> chunks_;
  std::unique_ptr<ThreadPool> pool_;
  cudaStream_t stream_ = nullptr;
  size_t current_ = 0;
  size_t used_ = 0;  // bytes of the current chunk
};

}  // namespace kapitsa::backend::cuda
