// The tokenizer and chat template that a checkpoint carries, and the tokens that end an answer.
#pragma once

#include "base/result.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::engine {

struct Vocabulary {
  text::Tokenizer tokenizer;
  std::vector<int32_t> stop_tokens;  // rising
  std::string chat_template;         // Jinja source, empty if the file has none

  bool is_stop(int32_t token) const;
  // Those of the names that are special tokens here.
  void add_stops(std::span<const std::string_view> names);
};

// From the metadata of a GGUF file, or from tokenizer.json and the files beside it in a folder. A
// model without a tokenizer, or with one of an unknown kind, is an error that names the key or
// file.
Result<Vocabulary> read_vocabulary(const weights::Checkpoint& file);

}  // namespace kapitsa::engine
