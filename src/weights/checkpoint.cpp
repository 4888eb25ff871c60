// Typed metadata lookups with their error messages, and the tensor index.
#include "weights/checkpoint.h"

#include "weights/describe.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace kapitsa::weights {
namespace {

std::string integer_range(std::string_view what, int64_t min, int64_t max) {
  const bool low = min != Checkpoint::kMinInteger;
  const bool high = max != Checkpoint::kMaxInteger;
  if (low && high) return fmt::format("{} in {}..{}", what, min, max);
  if (low) return fmt::format("{} of at least {}", what, min);
  if (high) return fmt::format("{} of at most {}", what, max);
  return std::string(what);
}

std::string number_range(std::string_view what, double min, double max) {
  const bool low = min != -Checkpoint::kMaxNumber;
  const bool high = max != Checkpoint::kMaxNumber;
  if (low && high) return fmt::format("{} in {}..{}", what, min, max);
  if (low) return fmt::format("{} of at least {}", what, min);
  if (high) return fmt::format("{} of at most {}", what, max);
  return std::string(what);
}

// True also for NaN, which no comparison accepts.
bool outside(double value, double min, double max) {
  return !(value >= min && value <= max) || !std::isfinite(value);
}

const double* as_number(const Value& value, double& storage) {
  if (const auto* number = std::get_if<double>(&value)) return number;
  if (const auto* integer = std::get_if<int64_t>(&value))
    storage = static_cast<double>(*integer);
  else if (const auto* large = std::get_if<uint64_t>(&value))
    storage = static_cast<double>(*large);
  else
    return nullptr;
  return &storage;
}

// Readers store an empty array as an empty StringList when the file does not tell a type.
bool is_empty_array(const Value& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (requires { v.size(); } && !std::is_same_v<decltype(v), const std::string&>)
          return v.size() == 0;
        else
          return false;
      },
      value);
}

}  // namespace

const char* to_string(Format format) {
  switch (format) {
  case Format::gguf: return "gguf";
  case Format::hf: return "hf";
  case Format::mlx: return "mlx";
  }
  return "unknown";
}

int64_t Tensor::n_elements() const {
  int64_t n = 1;
  for (const int64_t dimension : shape)
    n *= dimension;
  return n;
}

std::string describe(const Value& value) {
  struct Describe {
    std::string operator()(bool v) const { return v ? "the boolean true" : "the boolean false"; }
    std::string operator()(int64_t v) const { return fmt::format("the integer {}", v); }
    std::string operator()(uint64_t v) const { return fmt::format("the integer {}", v); }
    std::string operator()(double v) const { return fmt::format("the number {}", v); }
    std::string operator()(const std::string& v) const { return "the string " + quote(v); }
    std::string operator()(const std::vector<bool>& v) const { return array("booleans", v.size()); }
    std::string operator()(const std::vector<int64_t>& v) const {
      return array("integers", v.size());
    }
    std::string operator()(const std::vector<double>& v) const {
      return array("numbers", v.size());
    }
    std::string operator()(const StringList& v) const { return array("strings", v.size()); }
    static std::string array(std::string_view what, size_t n) {
      return fmt::format("an array of {} {}", n, what);
    }
  };
  return std::visit(Describe{}, value);
}

Checkpoint::Checkpoint(Format format, std::filesystem::path path)
    : format_(format), path_(std::move(path)) {}

const Tensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void Checkpoint::release(std::span<const std::byte> part) const {
  for (const MappedFile& file : files_)
    file.release(part);
}

const Tensor* Checkpoint::find_or_make(std::string_view name,
                                       const std::vector<int64_t>& shape) const {
  const Tensor* found = find(name);
  if (found != nullptr || !maker_) return found;
  std::optional<Tensor> made = maker_(name, shape);
  if (!made) return nullptr;
  found = &tensors_.emplace_back(std::move(*made));
  by_name_.emplace(found->name, found);
  return found;
}

const Value* Checkpoint::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

bool Checkpoint::set(std::string key, Value value) {
  return metadata_.emplace(std::move(key), std::move(value)).second;
}

bool Checkpoint::add(Tensor tensor) {
  if (by_name_.contains(tensor.name)) return false;
  const Tensor& kept = tensors_.emplace_back(std::move(tensor));
  by_name_.emplace(kept.name, &kept);
  return true;
}

Error Checkpoint::missing(std::string_view key, std::string_view expected) const {
  return {ErrorCode::corrupt_file, fmt::format("{}: key {}: expected {}, found no such key",
                                               path_.string(), quote(key), expected)};
}

Error Checkpoint::mismatch(std::string_view key, std::string_view expected,
                           std::string_view found) const {
  return {ErrorCode::corrupt_file, fmt::format("{}: key {}: expected {}, found {}", path_.string(),
                                               quote(key), expected, found)};
}

Result<int64_t> Checkpoint::integer(std::string_view key, int64_t min, int64_t max) const {
  const Value* found = value(key);
  if (found == nullptr) return missing(key, integer_range("an integer", min, max));
  const auto* integer = std::get_if<int64_t>(found);
  if (integer == nullptr || *integer < min || *integer > max)
    return mismatch(key, integer_range("an integer", min, max), describe(*found));
  return *integer;
}

Result<double> Checkpoint::number(std::string_view key, double min, double max) const {
  const Value* found = value(key);
  if (found == nullptr) return missing(key, number_range("a number", min, max));
  double storage = 0;
  const double* number = as_number(*found, storage);
  if (number == nullptr || outside(*number, min, max))
    return mismatch(key, number_range("a number", min, max), describe(*found));
  return *number;
}

Result<bool> Checkpoint::boolean(std::string_view key) const {
  const Value* found = value(key);
  if (found == nullptr) return missing(key, "a boolean");
  if (const auto* boolean = std::get_if<bool>(found)) return *boolean;
  return mismatch(key, "a boolean", describe(*found));
}

Result<std::string> Checkpoint::string(std::string_view key) const {
  const Value* found = value(key);
  if (found == nullptr) return missing(key, "a string");
  if (const auto* text = std::get_if<std::string>(found)) return *text;
  return mismatch(key, "a string", describe(*found));
}

Result<int64_t> Checkpoint::integer_or(std::string_view key, int64_t fallback, int64_t min,
                                       int64_t max) const {
  return has(key) ? integer(key, min, max) : Result<int64_t>(fallback);
}

Result<double> Checkpoint::number_or(std::string_view key, double fallback, double min,
                                     double max) const {
  return has(key) ? number(key, min, max) : Result<double>(fallback);
}

Result<bool> Checkpoint::boolean_or(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : Result<bool>(fallback);
}

Result<std::string> Checkpoint::string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : Result<std::string>(std::string(fallback));
}

Result<std::vector<int64_t>> Checkpoint::integers(std::string_view key, int64_t min,
                                                  int64_t max) const {
  const std::string expected = integer_range("an array of integers", min, max);
  const Value* found = value(key);
  if (found == nullptr) return missing(key, expected);
  if (is_empty_array(*found)) return std::vector<int64_t>{};
  std::vector<int64_t> values;
  if (const auto* array = std::get_if<std::vector<int64_t>>(found))
    values = *array;
  else if (const auto* single = std::get_if<int64_t>(found))
    values = {*single};
  else
    return mismatch(key, expected, describe(*found));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < min || values[i] > max)
      return mismatch(key, expected, fmt::format("{} at index {}", values[i], i));
  }
  return values;
}

Result<std::vector<double>> Checkpoint::numbers(std::string_view key, double min,
                                                double max) const {
  const std::string expected = number_range("an array of numbers", min, max);
  const Value* found = value(key);
  if (found == nullptr) return missing(key, expected);
  if (is_empty_array(*found)) return std::vector<double>{};
  std::vector<double> values;
  double storage = 0;
  if (const auto* array = std::get_if<std::vector<double>>(found))
    values = *array;
  else if (const auto* integers = std::get_if<std::vector<int64_t>>(found))
    values.assign(integers->begin(), integers->end());
  else if (const double* single = as_number(*found, storage))
    values = {*single};
  else
    return mismatch(key, expected, describe(*found));
  for (size_t i = 0; i < values.size(); ++i) {
    if (outside(values[i], min, max))
      return mismatch(key, expected, fmt::format("{} at index {}", values[i], i));
  }
  return values;
}

Result<std::vector<bool>> Checkpoint::booleans(std::string_view key) const {
  const Value* found = value(key);
  if (found == nullptr) return missing(key, "an array of booleans");
  if (is_empty_array(*found)) return std::vector<bool>{};
  if (const auto* array = std::get_if<std::vector<bool>>(found)) return *array;
  if (const auto* single = std::get_if<bool>(found)) return std::vector<bool>{*single};
  return mismatch(key, "an array of booleans", describe(*found));
}

Result<std::vector<std::string_view>> Checkpoint::strings(std::string_view key) const {
  const Value* found = value(key);
  if (found == nullptr) return missing(key, "an array of strings");
  std::vector<std::string_view> values;
  if (is_empty_array(*found)) return values;
  if (const auto* single = std::get_if<std::string>(found))
    return std::vector<std::string_view>{*single};
  const auto* list = std::get_if<StringList>(found);
  if (list == nullptr) return mismatch(key, "an array of strings", describe(*found));
  values.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i)
    values.push_back((*list)[i]);
  return values;
}

Result<std::vector<int64_t>> Checkpoint::integer_per_layer(std::string_view key, int64_t n,
                                                           int64_t min, int64_t max) const {
  KAPITSA_ASSIGN(std::vector<int64_t> values, integers(key, min, max));
  const Value* found = value(key);
  if (std::holds_alternative<int64_t>(*found))
    return std::vector<int64_t>(static_cast<size_t>(n), values.front());
  if (static_cast<int64_t>(values.size()) != n)
    return mismatch(key, fmt::format("one integer or an array of {}, one for each layer", n),
                    describe(*found));
  return values;
}

}  // namespace kapitsa::weights
