// Any bytes as a safetensors file, and any text as config.json: each gives a checkpoint whose
// tensors lie inside the input, or an error of one line.
#include "weights/hf.h"
#include "weights/json_metadata.h"
#include "weights/safetensors.h"

#include <cstddef>
#include <cstdint>

namespace {

using namespace kapitsa::weights;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

void check_inside(const Tensor& tensor, std::span<const std::byte> input) {
  const auto bytes = kapitsa::dtype_bytes(tensor.dtype, tensor.n_elements());
  require(bytes && static_cast<size_t>(*bytes) == tensor.data.size());
  require(tensor.data.data() >= input.data());
  require(tensor.data.data() + tensor.data.size() <= input.data() + input.size());
}

void check_error(const kapitsa::Status& status) {
  require(status.ok() || status.error().message.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  Checkpoint checkpoint(Format::hf, "fuzz");
  check_error(add_safetensors(input, "fuzz.safetensors", checkpoint));
  for (const Tensor& tensor : checkpoint.tensors())
    check_inside(tensor, input);

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_error(add_json_metadata(text, "config.json", "", checkpoint));
  const auto module = find_mlx_module(checkpoint, "m");
  require(!module || !module->has_value() || (*module)->scales != nullptr);
  for (const auto& [key, value] : checkpoint.metadata())
    require(!describe(value).empty());
  return 0;
}
