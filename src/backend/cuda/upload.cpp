#include "backend/cuda/upload.h"

#include "base/system.h"

#include <algorithm>
#include <cstring>

namespace kapitsa::backend::cuda {
namespace {

constexpr int kMaxThreads = 8;                     // more do not make memory faster
constexpr size_t kWorthThreads = size_t{1} << 20;  // bytes

}  // namespace

Result<Uploader> Uploader::create(cudaStream_t stream) {
  Uploader uploader;
  uploader.stream_ = stream;
  uploader.pool_ = std::make_unique<ThreadPool>(std::clamp(available_cores(), 1, kMaxThreads));
  for (Chunk& chunk : uploader.chunks_) {
    KAPITSA_ASSIGN(chunk.memory, allocate_pinned(kChunk, "loading weights"));
    KAPITSA_ASSIGN(chunk.sent, make_event());
  }
  return uploader;
}

Status Uploader::next_chunk() {
  Chunk& full = chunks_[current_];
  KAPITSA_TRY(check(cudaEventRecord(full.sent.get(), stream_), "loading weights"));
  full.on_its_way = true;
  current_ = 1 - current_;
  used_ = 0;
  Chunk& next = chunks_[current_];
  if (!next.on_its_way) return {};
  next.on_its_way = false;
  return check(cudaEventSynchronize(next.sent.get()), "loading weights");
}

Status Uploader::copy(std::byte* to, std::span<const std::byte> from) {
  while (!from.empty()) {
    if (used_ == kChunk) KAPITSA_TRY(next_chunk());
    const size_t n = std::min(from.size(), kChunk - used_);
    std::byte* staged = chunks_[current_].memory.get() + used_;
    if (n < kWorthThreads) {
      std::memcpy(staged, from.data(), n);
    } else {
      pool_->run([&](int thread, int n_threads) {
        const Range part = partition(static_cast<int64_t>(n), thread, n_threads, 4096);
        if (part.begin < part.end)
          std::memcpy(staged + part.begin, from.data() + part.begin,
                      static_cast<size_t>(part.end - part.begin));
      });
    }
    KAPITSA_TRY(
        check(cudaMemcpyAsync(to, staged, n, cudaMemcpyHostToDevice, stream_), "loading weights"));
    used_ += n;
    to += n;
    from = from.subspan(n);
  }
  return {};
}

Status Uploader::finish() {
  return check(cudaStreamSynchronize(stream_), "loading weights");
}

}  // namespace kapitsa::backend::cuda
