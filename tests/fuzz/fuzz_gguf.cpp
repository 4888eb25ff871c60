// Any bytes as a GGUF file: opening gives a checkpoint or an error, and each tensor of a checkpoint
// lies inside the input, so that its first row decodes.
#include "weights/codec.h"
#include "weights/gguf.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

// Long rows are cut: decoding more of the same finds nothing new.
constexpr int64_t kMostValues = 4096;

void decode_first_row(const kapitsa::weights::Tensor& tensor) {
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  const auto n = static_cast<size_t>(std::min(row, kMostValues));
  const auto bytes = kapitsa::dtype_bytes(tensor.dtype, static_cast<int64_t>(n));
  if (!bytes || !kapitsa::weights::can_dequantise(tensor.dtype)) return;
  // A copy of exact size, so that AddressSanitizer sees a read past the row.
  const auto first = tensor.data.first(static_cast<size_t>(*bytes));
  const std::vector<std::byte> copy(first.begin(), first.end());
  std::vector<float> values(n);
  if (!kapitsa::weights::dequantise(tensor.dtype, copy, values)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  const auto file = kapitsa::weights::read_gguf(input, "fuzz.gguf");
  if (!file) {
    if (file.error().message.find('\n') != std::string::npos) __builtin_trap();
    return 0;
  }
  for (const auto& [key, value] : file->metadata())
    if (kapitsa::weights::describe(value).empty()) __builtin_trap();
  for (const kapitsa::weights::Tensor& tensor : file->tensors()) {
    if (file->find(tensor.name) != &tensor) __builtin_trap();
    decode_first_row(tensor);
  }
  return 0;
}
