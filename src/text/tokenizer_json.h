// Reads a Hugging Face tokenizer.json, and the few facts of tokenizer_config.json that it lacks.
// The tokenizer then gives the ids of the `tokenizers` library. What this build does not do exactly
// is an error that names the part of the file.
#pragma once

#include "base/result.h"
#include "text/tokenizer.h"

#include <optional>
#include <string>
#include <string_view>

namespace kapitsa::text {

// tokenizer_config.json. Empty strings: not given.
struct TokenizerConfig {
  std::string bos;
  std::string eos;
  std::string pad;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::string chat_template;  // the one named "default" where there are several
};
Result<TokenizerConfig> read_tokenizer_config(std::string_view json);

// `json` is the content of the file. Where the config does not say, bos and eos are added as the
// file's post-processor does.
Result<Tokenizer> read_tokenizer_json(std::string_view json, const TokenizerConfig& config = {});

}  // namespace kapitsa::text
