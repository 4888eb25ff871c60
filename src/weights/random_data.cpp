// Blocks come from a pool of 32 MiB per type, copied from random places: faster than the memory
// that they fill, and too large for a cache to hold.
#include "weights/random_data.h"

#include "base/half.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace kapitsa::weights {
namespace {

constexpr size_t kPoolBytes = size_t{32} << 20;

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Random {
public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24F; }

private:
  uint64_t state_;
};

// FNV-1a.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void set_half(std::byte* at, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}

// Where the blocks of a type have their scales, and the scales that give a deviation near 0.02.
void set_scales(DType dtype, std::byte* block) {
  switch (dtype) {
  case DType::q4_0: set_half(block, 4.0e-3F); break;
  case DType::q8_0: set_half(block, 2.5e-4F); break;
  case DType::q4_k:
    set_half(block, 0.8e-4F);
    set_half(block + 2, 0.8e-4F * 7.5F);  // the mean code is 7.5
    break;
  case DType::q6_k: set_half(block + 208, 2.0e-5F); break;
  default: break;
  }
}

bool has_pool(DType dtype) {
  return dtype == DType::q4_0 || dtype == DType::q8_0 || dtype == DType::q4_k ||
         dtype == DType::q6_k;
}

void fill_f32(Random& random, RandomKind kind, std::span<std::byte> out) {
  for (size_t at = 0; at + sizeof(float) <= out.size(); at += sizeof(float)) {
    const float spread = (random.uniform() - 0.5F) * 0.07F;  // deviation 0.02
    float value = spread;
    if (kind == RandomKind::norm) value = 1.0F + spread;
    if (kind == RandomKind::decay) value = -0.5F - 50.0F * (spread + 0.035F);
    std::memcpy(out.data() + at, &value, sizeof value);
  }
}

}  // namespace

const std::vector<std::byte>& RandomData::pool(DType dtype) {
  std::vector<std::byte>& pool = pools_[dtype];
  if (!pool.empty()) return pool;
  const auto block = static_cast<size_t>(dtype_info(dtype).block_bytes);
  pool.resize(kPoolBytes / block * block);
  Random random(static_cast<uint64_t>(dtype));
  for (size_t at = 0; at < pool.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random.next();
    std::memcpy(pool.data() + at, &word, std::min(sizeof word, pool.size() - at));
  }
  for (size_t at = 0; at < pool.size(); at += block)
    set_scales(dtype, pool.data() + at);
  return pool;
}

Status RandomData::fill(std::string_view name, DType dtype, RandomKind kind,
                        std::span<std::byte> out) {
  Random random(hash_of(name));
  if (dtype == DType::f32) {
    fill_f32(random, kind, out);
    return {};
  }
  if (!has_pool(dtype)) {
    return Error{ErrorCode::unsupported,
                 fmt::format("random data of type {} is not supported", dtype_info(dtype).name)};
  }
  const std::vector<std::byte>& blocks = pool(dtype);
  const auto block = static_cast<size_t>(dtype_info(dtype).block_bytes);
  for (size_t at = 0; at < out.size();) {
    const size_t from = random.next() % (blocks.size() / block / 2) * block;
    const size_t n = std::min(out.size() - at, blocks.size() - from);
    std::memcpy(out.data() + at, blocks.data() + from, n);
    at += n;
  }
  return {};
}

}  // namespace kapitsa::weights
