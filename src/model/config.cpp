#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kapitsa::model {

ConfigReader::ConfigReader(const weights::Checkpoint& file, std::string gguf_prefix,
                           std::string hf_prefix)
    : file_(file), gguf_prefix_(std::move(gguf_prefix)), hf_prefix_(std::move(hf_prefix)) {}

std::string ConfigReader::name(const Key& key) const {
  const std::string_view own = is_gguf() ? key.gguf : key.hf;
  if (own.empty()) return "";
  return (is_gguf() ? gguf_prefix_ + "." : hf_prefix_) + std::string(own);
}

bool ConfigReader::has(const Key& key) const {
  const std::string full = name(key);
  return !full.empty() && file_.has(full);
}

template <typename T, typename Read>
T ConfigReader::take(const Key& key, T fallback, const Read& read) {
  const std::string full = name(key);
  if (!status_ || full.empty()) return fallback;
  auto result = read(full);
  if (!result) {
    status_ = result.error();
    return fallback;
  }
  return static_cast<T>(*result);
}

int32_t ConfigReader::count(const Key& key, int64_t max) {
  return take<int32_t>(key, 1,
                       [&](const std::string& full) { return file_.integer(full, 1, max); });
}

int32_t ConfigReader::count_or(const Key& key, int64_t fallback, int64_t max) {
  return take<int32_t>(key, static_cast<int32_t>(fallback), [&](const std::string& full) {
    return file_.integer_or(full, fallback, 1, max);
  });
}

int32_t ConfigReader::optional_count(const Key& key, int64_t max) {
  return take<int32_t>(key, 0,
                       [&](const std::string& full) { return file_.integer_or(full, 0, 0, max); });
}

float ConfigReader::number(const Key& key, double low, double high) {
  return take<float>(key, 0.0F,
                     [&](const std::string& full) { return file_.number(full, low, high); });
}

float ConfigReader::number_or(const Key& key, double fallback, double low, double high) {
  return take<float>(key, static_cast<float>(fallback), [&](const std::string& full) {
    return file_.number_or(full, fallback, low, high);
  });
}

bool ConfigReader::flag_or(const Key& key, bool fallback) {
  return take<bool>(key, fallback,
                    [&](const std::string& full) { return file_.boolean_or(full, fallback); });
}

std::string ConfigReader::text_or(const Key& key, std::string_view fallback) {
  return take<std::string>(key, std::string(fallback), [&](const std::string& full) {
    return file_.string_or(full, fallback);
  });
}

std::vector<std::string_view> ConfigReader::texts(const Key& key) {
  return take<std::vector<std::string_view>>(
      key, {}, [&](const std::string& full) { return file_.strings(full); });
}

std::vector<bool> ConfigReader::flags(const Key& key) {
  return take<std::vector<bool>>(key, {},
                                 [&](const std::string& full) { return file_.booleans(full); });
}

std::vector<int32_t> ConfigReader::counts_per_layer(const Key& key, int32_t n, int64_t max) {
  const std::vector<int64_t> found = take<std::vector<int64_t>>(
      key, std::vector<int64_t>(static_cast<size_t>(n)),
      [&](const std::string& full) { return file_.integer_per_layer(full, n, 0, max); });
  std::vector<int32_t> counts;
  for (const int64_t count : found)
    counts.push_back(static_cast<int32_t>(count));
  return counts;
}

std::vector<int64_t> ConfigReader::integers(const Key& key, int64_t min, int64_t max) {
  return take<std::vector<int64_t>>(
      key, {}, [&](const std::string& full) { return file_.integers(full, min, max); });
}

void ConfigReader::expect(const Key& key, std::initializer_list<std::string_view> known) {
  const std::string found = text_or(key, *known.begin());
  if (std::find(known.begin(), known.end(), found) != known.end()) return;
  refuse(ErrorCode::unsupported, key, fmt::format("{}", fmt::join(known, " or ")), found);
}

void ConfigReader::expect_flag(const Key& key, bool only) {
  if (flag_or(key, only) == only) return;
  refuse(ErrorCode::unsupported, key, only ? "true" : "false", only ? "false" : "true");
}

void ConfigReader::refuse(ErrorCode code, const Key& key, std::string_view expected,
                          std::string_view found) {
  if (!status_) return;
  status_ = Error{code, fmt::format("{}: {}: expected {}, found {}", file_.path().string(),
                                    name(key), expected, found)};
}

Status refuse_mlx(const weights::Checkpoint& file, std::string_view architecture) {
  if (file.format() != weights::Format::mlx) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("{}: {} in MLX format is not supported; use the Hugging Face folder",
                           file.path().string(), architecture)};
}

std::string text_config_prefix(const weights::Checkpoint& file) {
  const bool nested = file.format() != weights::Format::gguf && file.has("text_config.hidden_size");
  return nested ? "text_config." : "";
}

}  // namespace kapitsa::model
