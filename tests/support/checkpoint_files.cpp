#include "support/checkpoint_files.h"

#include "base/env.h"
#include "weights/open.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace kapitsa::test {
namespace {

template <typename T>
std::vector<T> values(const weights::Checkpoint& file, const std::string& name, DType dtype) {
  const weights::Tensor* tensor = file.find(name);
  KAPITSA_CHECK(tensor != nullptr && tensor->dtype == dtype, ("no such tensor: " + name).c_str());
  std::vector<T> result(tensor->data.size() / sizeof(T));
  std::memcpy(result.data(), tensor->data.data(), result.size() * sizeof(T));
  return result;
}

}  // namespace

weights::Checkpoint read_test_checkpoint(const std::filesystem::path& path) {
  auto file = weights::open_checkpoint(path);
  KAPITSA_CHECK(file.ok(), file.error().message.c_str());
  return std::move(*file);
}

std::filesystem::path golden_path(const std::string& name) {
  // A test program that was built on another machine is told where its data lies.
  const std::filesystem::path tests = environment("KAPITSA_TEST_DATA").value_or(KAPITSA_TEST_DATA);
  return tests / "golden" / "data" / name;
}

std::vector<float> floats(const weights::Checkpoint& file, const std::string& tensor) {
  return values<float>(file, tensor, DType::f32);
}

std::vector<int32_t> integers(const weights::Checkpoint& file, const std::string& tensor) {
  return values<int32_t>(file, tensor, DType::i32);
}

double relative_error(std::span<const float> found, std::span<const float> expected) {
  KAPITSA_CHECK(found.size() == expected.size() && !found.empty(), "sizes differ");
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double e = expected[i];
    const double d = found[i] - e;
    difference += d * d;
    size += e * e;
  }
  return std::sqrt(difference / size);
}

}  // namespace kapitsa::test
