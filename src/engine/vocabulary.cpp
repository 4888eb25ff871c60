#include "engine/vocabulary.h"

#include "base/file.h"
#include "text/tokenizer_json.h"

#include <algorithm>

namespace kapitsa::engine {
namespace {

constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

using text::TokenizerModel;
using text::TokenizerSpec;
using text::TokenType;

// Control tokens that end a turn in some family. A file names one eos token, but many models also
// stop with another of these (GGUF files of Qwen3.5 carry one of two).
constexpr const char* kTurnEnds[] = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>",
                                     "<|eot_id|>", "<|eot|>",       "<|end|>",
                                     "<|return|>", "<turn|>",       "<end_of_turn>"};

Result<TokenizerModel> tokenizer_model(const weights::Checkpoint& file) {
  KAPITSA_ASSIGN(const std::string name, file.string("tokenizer.ggml.model"));
  if (name == "gpt2") return TokenizerModel::bpe_bytes;
  // Gemma 4 has a merge list over code points instead of scores.
  if (name == "llama" || name == "gemma4") return TokenizerModel::spm_bpe;
  if (name == "t5") return TokenizerModel::unigram;
  return Error{ErrorCode::unsupported,
               file.path().string() +
                   ": tokenizer.ggml.model: expected gpt2, llama, gemma4 or t5, found '" + name +
                   "'"};
}

Result<std::vector<TokenType>> token_types(const weights::Checkpoint& file) {
  std::vector<TokenType> types;
  if (!file.has("tokenizer.ggml.token_type")) return types;
  KAPITSA_ASSIGN(const std::vector<int64_t> values,
                 file.integers("tokenizer.ggml.token_type", 0, 6));
  types.reserve(values.size());
  for (const int64_t value : values) {
    types.push_back(value == 0 ? TokenType::normal : static_cast<TokenType>(value));
  }
  return types;
}

Status read_special_ids(const weights::Checkpoint& file, TokenizerSpec& spec) {
  const auto last = static_cast<int64_t>(spec.tokens.size()) - 1;
  const auto read = [&](const char* key, int32_t& id) -> Status {
    KAPITSA_ASSIGN(const int64_t value, file.integer_or(key, -1, -1, last));
    id = static_cast<int32_t>(value);
    return {};
  };
  KAPITSA_TRY(read("tokenizer.ggml.bos_token_id", spec.bos));
  KAPITSA_TRY(read("tokenizer.ggml.eos_token_id", spec.eos));
  KAPITSA_TRY(read("tokenizer.ggml.eot_token_id", spec.eot));
  KAPITSA_TRY(read("tokenizer.ggml.unknown_token_id", spec.unk));
  KAPITSA_TRY(read("tokenizer.ggml.padding_token_id", spec.pad));
  return {};
}

std::vector<int32_t> stop_tokens(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> stops;
  const auto add = [&](int32_t id) {
    if (id >= 0) stops.push_back(id);
  };
  add(tokenizer.eos());
  add(tokenizer.eot());
  for (const char* name : kTurnEnds)
    add(tokenizer.find_special(name));
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

// The ids of config.json and generation_config.json: the models that a folder holds often name more
// than one end there.
Status add_config_stops(const weights::Checkpoint& file, int32_t n_tokens,
                        std::vector<int32_t>& stops) {
  for (const char* key : {"eos_token_id", "generation_config.eos_token_id"}) {
    if (!file.has(key)) continue;
    KAPITSA_ASSIGN(const std::vector<int64_t> ids, file.integers(key, 0, n_tokens - 1));
    for (const int64_t id : ids)
      stops.push_back(static_cast<int32_t>(id));
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return {};
}

// A file of the model's folder, or an empty text where there is none.
Result<std::string> optional_text(const std::filesystem::path& path) {
  auto text = read_text_file(path, kMaxTokenizerBytes);
  if (!text && text.error().code == ErrorCode::not_found) return std::string();
  return text;
}

// tokenizer.json with what tokenizer_config.json and chat_template.jinja add to it.
Result<Vocabulary> read_folder_vocabulary(const weights::Checkpoint& file) {
  const std::filesystem::path& folder = file.path();
  const auto named = [](const std::filesystem::path& path, const Error& error) {
    return Error{error.code, path.string() + ": " + error.message};
  };
  text::TokenizerConfig config;
  const auto config_path = folder / "tokenizer_config.json";
  KAPITSA_ASSIGN(const std::string config_text, optional_text(config_path));
  if (!config_text.empty()) {
    auto read = text::read_tokenizer_config(config_text);
    if (!read) return named(config_path, read.error());
    config = std::move(*read);
  }
  const auto path = folder / "tokenizer.json";
  KAPITSA_ASSIGN(const std::string json, read_text_file(path, kMaxTokenizerBytes));
  auto tokenizer = text::read_tokenizer_json(json, config);
  if (!tokenizer) return named(path, tokenizer.error());
  Vocabulary vocabulary{std::move(*tokenizer), {}, std::move(config.chat_template)};
  vocabulary.stop_tokens = stop_tokens(vocabulary.tokenizer);
  KAPITSA_TRY(add_config_stops(file, vocabulary.tokenizer.n_tokens(), vocabulary.stop_tokens));
  KAPITSA_ASSIGN(const std::string separate, optional_text(folder / "chat_template.jinja"));
  if (!separate.empty()) vocabulary.chat_template = separate;
  return vocabulary;
}

}  // namespace

bool Vocabulary::is_stop(int32_t token) const {
  return std::binary_search(stop_tokens.begin(), stop_tokens.end(), token);
}

void Vocabulary::add_stops(std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const int32_t id = tokenizer.find_special(name);
    const auto place = std::lower_bound(stop_tokens.begin(), stop_tokens.end(), id);
    if (id >= 0 && (place == stop_tokens.end() || *place != id)) stop_tokens.insert(place, id);
  }
}

Result<Vocabulary> read_vocabulary(const weights::Checkpoint& file) {
  if (file.format() != weights::Format::gguf) return read_folder_vocabulary(file);
  TokenizerSpec spec;
  KAPITSA_ASSIGN(spec.model, tokenizer_model(file));
  KAPITSA_ASSIGN(spec.pre, file.string_or("tokenizer.ggml.pre", ""));
  KAPITSA_ASSIGN(spec.tokens, file.strings("tokenizer.ggml.tokens"));
  KAPITSA_ASSIGN(spec.types, token_types(file));
  if (spec.model == TokenizerModel::bpe_bytes || file.has("tokenizer.ggml.merges")) {
    KAPITSA_ASSIGN(spec.merges, file.strings("tokenizer.ggml.merges"));
  }
  if (file.has("tokenizer.ggml.scores")) {
    KAPITSA_ASSIGN(const std::vector<double> scores, file.numbers("tokenizer.ggml.scores"));
    spec.scores.assign(scores.begin(), scores.end());
  }
  KAPITSA_TRY(read_special_ids(file, spec));
  // The defaults are those of the converters that leave the keys out.
  const bool spm = spec.model == TokenizerModel::spm_bpe;
  KAPITSA_ASSIGN(spec.add_bos, file.boolean_or("tokenizer.ggml.add_bos_token", spm));
  KAPITSA_ASSIGN(spec.add_eos, file.boolean_or("tokenizer.ggml.add_eos_token", false));
  KAPITSA_ASSIGN(spec.add_space_prefix,
                 file.boolean_or("tokenizer.ggml.add_space_prefix", spm && spec.merges.empty()));

  auto tokenizer = text::Tokenizer::create(spec);
  if (!tokenizer) {
    return Error{tokenizer.error().code,
                 file.path().string() + ": tokenizer: " + tokenizer.error().message};
  }
  Vocabulary vocabulary{std::move(*tokenizer), {}, {}};
  vocabulary.stop_tokens = stop_tokens(vocabulary.tokenizer);
  KAPITSA_ASSIGN(vocabulary.chat_template, file.string_or("tokenizer.chat_template", ""));
  return vocabulary;
}

}  // namespace kapitsa::engine
