// Reads an architecture's sizes from the metadata of either file format: a GGUF key below the
// architecture's prefix, or a key of config.json. Keeps the first failure; later calls are no-ops
// that return the fallback, so that a model file reads everything and asks once.
#pragma once

#include "base/result.h"
#include "weights/checkpoint.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::model {

// "embedding_length" is llama.embedding_length in GGUF; an empty name: the format lacks the key.
struct Key {
  std::string_view gguf;
  std::string_view hf;
};

class ConfigReader {
public:
  // hf_prefix is "" or, for the text part of a multimodal config, "text_config.".
  ConfigReader(const weights::Checkpoint& file, std::string gguf_prefix,
               std::string hf_prefix = "");

  // A positive count of at most max.
  int32_t count(const Key& key, int64_t max);
  int32_t count_or(const Key& key, int64_t fallback, int64_t max);
  // A count of what may not be there: 0 where the key is absent.
  int32_t optional_count(const Key& key, int64_t max);
  // A number in low..high.
  float number(const Key& key, double low, double high);
  float number_or(const Key& key, double fallback, double low, double high);
  bool flag_or(const Key& key, bool fallback);
  std::string text_or(const Key& key, std::string_view fallback);
  std::vector<std::string_view> texts(const Key& key);
  std::vector<bool> flags(const Key& key);
  // A count in 0..max for each of n layers; a single one in the file serves all of them.
  std::vector<int32_t> counts_per_layer(const Key& key, int32_t n, int64_t max);
  // Each in min..max.
  std::vector<int64_t> integers(const Key& key, int64_t min, int64_t max);
  bool has(const Key& key) const;

  // Refuses another value than those listed; an absent key is the first of them.
  void expect(const Key& key, std::initializer_list<std::string_view> known);
  void expect_flag(const Key& key, bool only);

  // Refuses the file: "<file>: <key>: expected <expected>, found <found>".
  void refuse(ErrorCode code, const Key& key, std::string_view expected, std::string_view found);

  // The key's full name in this file; empty if its format lacks it.
  std::string name(const Key& key) const;
  const weights::Checkpoint& file() const { return file_; }
  bool is_gguf() const { return file_.format() == weights::Format::gguf; }
  const Status& status() const { return status_; }

private:
  template <typename T, typename Read>
  T take(const Key& key, T fallback, const Read& read);

  const weights::Checkpoint& file_;
  std::string gguf_prefix_;
  std::string hf_prefix_;
  Status status_;
};

// Refuses an MLX folder of an architecture whose layout there is not known.
Status refuse_mlx(const weights::Checkpoint& file, std::string_view architecture);

// The hf_prefix of a file: "text_config." where config.json describes a multimodal model.
std::string text_config_prefix(const weights::Checkpoint& file);

}  // namespace kapitsa::model
