// The model, the added tokens and the post-processor of tokenizer.json. Strings of the
// specification point into the parsed document, which lives until the Tokenizer has been made.
#include "text/tokenizer_json.h"

#include "base/json.h"
#include "text/quoted.h"
#include "text/tokenizer_json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kapitsa::text {

namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;
using namespace tokenizer_json;

constexpr JsonLimits kLimits{.max_depth = 32, .max_bytes = size_t{256} << 20, .unique_keys = true};
// Ids may have holes, but not so many that a small file fills the memory.
constexpr size_t kMaxHoles = 65536;

class Reader {
public:
  Reader(const object& root, const TokenizerConfig& config) : root_(root), config_(config) {}

  Result<Tokenizer> run() {
    KAPITSA_ASSIGN(Pipeline pipeline, read_pipeline(root_));
    const value* model = find(root_, "model");
    if (!model) return corrupt("model", "expected an object");
    KAPITSA_ASSIGN(const object* model_object, as_object(*model, "model"));
    KAPITSA_TRY(read_model(*model_object, pipeline.byte_level));
    KAPITSA_TRY(read_added_tokens());
    KAPITSA_TRY(read_post_processor());
    apply_config();
    spec_.normalize = std::move(pipeline.normalize);
    spec_.prepare = std::move(pipeline.prepare);
    spec_.split = std::move(pipeline.split);
    spec_.strip_first_space = pipeline.strip_first_space;
    auto tokenizer = Tokenizer::create(spec_);
    if (!tokenizer)
      return Error{tokenizer.error().code, "tokenizer.json: " + tokenizer.error().message};
    return tokenizer;
  }

private:
  // Files before version 0.9 of the library have no type.
  static std::string_view guessed_type(const object& model) {
    const value* vocabulary = find(model, "vocab");
    if (vocabulary && vocabulary->is_array()) return "Unigram";
    return find(model, "merges") ? "BPE" : "WordPiece";
  }

  Status read_model(const object& model, bool byte_level) {
    KAPITSA_ASSIGN(const std::string_view type,
                   string_or(model, "type", guessed_type(model), "model"));
    KAPITSA_ASSIGN(byte_fallback_, bool_or(model, "byte_fallback", false, "model"));
    if (type == "Unigram") {
      if (byte_level) return unsupported("model", "Unigram over bytes");
      spec_.model = TokenizerModel::unigram;
      return read_unigram(model);
    }
    if (type != "BPE")
      return unsupported("model.type", "expected BPE or Unigram, found another type");
    spec_.model = byte_level ? TokenizerModel::bpe_bytes : TokenizerModel::spm_bpe;
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      KAPITSA_ASSIGN(const std::string_view affix, string_or(model, key, "", "model"));
      if (!affix.empty()) return unsupported("model", fmt::format("{} is not supported", key));
    }
    KAPITSA_ASSIGN(spec_.ignore_merges, bool_or(model, "ignore_merges", false, "model"));
    KAPITSA_ASSIGN(spec_.fuse_unk, bool_or(model, "fuse_unk", false, "model"));
    KAPITSA_TRY(read_vocabulary(model));
    KAPITSA_TRY(read_merges(model));
    KAPITSA_ASSIGN(const std::string_view unknown, string_or(model, "unk_token", "", "model"));
    if (!unknown.empty()) spec_.unk = id_of(unknown);
    return {};
  }

  Status put(std::string_view token, int64_t id, TokenType type, std::string_view where) {
    const size_t limit = 2 * n_entries_ + kMaxHoles;
    if (id < 0 || static_cast<uint64_t>(id) >= limit)
      return corrupt(where, fmt::format("token id {} is not in 0 to {}", id, limit - 1));
    const auto i = static_cast<size_t>(id);
    if (i >= spec_.tokens.size()) {
      spec_.tokens.resize(i + 1);
      spec_.types.resize(i + 1, TokenType::unused);
      is_taken_.resize(i + 1);
    }
    if (is_taken_[i] && spec_.tokens[i] != token)
      return corrupt(where, fmt::format("token id {}: expected one token, found {} and {}", id,
                                        quoted(spec_.tokens[i]), quoted(token)));
    is_taken_[i] = true;
    spec_.tokens[i] = token;
    spec_.types[i] = type;
    return {};
  }

  TokenType type_of(std::string_view token) const {
    const bool is_byte = byte_fallback_ && spec_.model != TokenizerModel::bpe_bytes &&
                         token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    return is_byte ? TokenType::byte : TokenType::normal;
  }

  Status read_vocabulary(const object& model) {
    const value* found = find(model, "vocab");
    if (!found) return corrupt("model.vocab", "expected an object");
    KAPITSA_ASSIGN(const object* vocabulary, as_object(*found, "model.vocab"));
    n_entries_ = vocabulary->size();
    for (const auto& entry : *vocabulary) {
      const std::string_view token(entry.key().data(), entry.key().size());
      if (!entry.value().is_int64()) return corrupt("model.vocab", "expected integer ids");
      KAPITSA_TRY(put(token, entry.value().get_int64(), type_of(token), "model.vocab"));
    }
    return {};
  }

  Status read_merges(const object& model) {
    const value* found = find(model, "merges");
    if (!found) return corrupt("model.merges", "expected an array");
    KAPITSA_ASSIGN(const array* merges, as_array(*found, "model.merges"));
    for (const value& merge : *merges) {
      if (const auto* text = merge.if_string()) {
        const size_t space = view(*text).find(' ');
        if (space == std::string_view::npos)
          return corrupt("model.merges", "a merge without a space");
        spec_.merge_pairs.emplace_back(view(*text).substr(0, space), view(*text).substr(space + 1));
        continue;
      }
      const array* pair = merge.if_array();
      if (!pair || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string())
        return corrupt("model.merges", "expected pairs of strings");
      spec_.merge_pairs.emplace_back(view((*pair)[0].get_string()), view((*pair)[1].get_string()));
    }
    return {};
  }

  Status read_unigram(const object& model) {
    const value* found = find(model, "vocab");
    if (!found) return corrupt("model.vocab", "expected an array");
    KAPITSA_ASSIGN(const array* vocabulary, as_array(*found, "model.vocab"));
    n_entries_ = vocabulary->size();
    for (size_t i = 0; i < vocabulary->size(); ++i) {
      const array* pair = (*vocabulary)[i].if_array();
      if (!pair || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number())
        return corrupt("model.vocab", "expected pairs of a string and a score");
      const std::string_view token = view((*pair)[0].get_string());
      KAPITSA_TRY(put(token, static_cast<int64_t>(i), type_of(token), "model.vocab"));
      spec_.scores.push_back((*pair)[1].to_number<double>());
    }
    if (find(model, "unk_id")) {
      KAPITSA_ASSIGN(const int64_t unknown, integer_member(model, "unk_id", "model"));
      if (unknown < 0 || static_cast<uint64_t>(unknown) >= spec_.tokens.size())
        return corrupt("model.unk_id", "not a token");
      spec_.unk = static_cast<int32_t>(unknown);
      spec_.types[static_cast<size_t>(unknown)] = TokenType::unknown;
    }
    return {};
  }

  Status read_added_tokens() {
    spec_.added.emplace();
    const value* found = find(root_, "added_tokens");
    if (!found) return {};
    constexpr std::string_view kWhere = "added_tokens";
    KAPITSA_ASSIGN(const array* tokens, as_array(*found, kWhere));
    n_entries_ += tokens->size();
    for (const value& item : *tokens) {
      KAPITSA_ASSIGN(const object* token, as_object(item, kWhere));
      AddedToken added;
      KAPITSA_ASSIGN(added.text, string_member(*token, "content", kWhere));
      KAPITSA_ASSIGN(const int64_t id, integer_member(*token, "id", kWhere));
      KAPITSA_ASSIGN(added.special, bool_or(*token, "special", false, kWhere));
      KAPITSA_ASSIGN(added.single_word, bool_or(*token, "single_word", false, kWhere));
      KAPITSA_ASSIGN(added.lstrip, bool_or(*token, "lstrip", false, kWhere));
      KAPITSA_ASSIGN(added.rstrip, bool_or(*token, "rstrip", false, kWhere));
      KAPITSA_ASSIGN(added.normalized, bool_or(*token, "normalized", !added.special, kWhere));
      // A token that is also in the vocabulary stays a piece of the model, unless it is special.
      const bool in_model = id >= 0 && static_cast<uint64_t>(id) < spec_.types.size() &&
                            spec_.types[static_cast<size_t>(id)] == TokenType::normal;
      const TokenType type = added.special ? TokenType::control
                             : in_model    ? TokenType::normal
                                           : TokenType::user_defined;
      KAPITSA_TRY(put(added.text, id, type, kWhere));
      added.id = static_cast<int32_t>(id);
      spec_.added->push_back(added);
    }
    if (!spec_.scores.empty()) spec_.scores.resize(spec_.tokens.size(), 0.0);
    return {};
  }

  // {"SpecialToken": {"id": name, "type_id": 0}} -> the id of the token; -1 for {"Sequence": ...}.
  Result<int32_t> template_item(const value& item, const object* special_tokens) const {
    constexpr std::string_view kWhere = "post_processor.single";
    KAPITSA_ASSIGN(const object* wrapped, as_object(item, kWhere));
    if (find(*wrapped, "Sequence")) return -1;
    const value* special = find(*wrapped, "SpecialToken");
    if (!special) return corrupt(kWhere, "expected SpecialToken or Sequence");
    KAPITSA_ASSIGN(const object* token, as_object(*special, kWhere));
    KAPITSA_ASSIGN(const std::string_view name, string_member(*token, "id", kWhere));
    const value* entry = special_tokens ? find(*special_tokens, name) : nullptr;
    const value* ids = entry && entry->is_object() ? find(entry->get_object(), "ids") : nullptr;
    const array* list = ids ? ids->if_array() : nullptr;
    if (!list || list->size() != 1 || !(*list)[0].is_int64())
      return unsupported(kWhere, "expected special tokens of one id");
    const int64_t id = (*list)[0].get_int64();
    if (id < 0 || static_cast<uint64_t>(id) >= spec_.tokens.size())
      return corrupt(kWhere, fmt::format("special token id {} is not a token", id));
    return static_cast<int32_t>(id);
  }

  Status read_template(const object& step) {
    constexpr std::string_view kWhere = "post_processor.single";
    const value* single = find(step, "single");
    if (!single) return corrupt(kWhere, "expected an array");
    KAPITSA_ASSIGN(const array* items, as_array(*single, kWhere));
    const value* special = find(step, "special_tokens");
    bool after_text = false;
    for (const value& item : *items) {
      KAPITSA_ASSIGN(const int32_t id,
                     template_item(item, special ? special->if_object() : nullptr));
      if (id < 0) {
        after_text = true;
        continue;
      }
      int32_t& place = after_text ? spec_.eos : spec_.bos;
      if (place >= 0) return unsupported(kWhere, "more than one token before or after the text");
      place = id;
      (after_text ? spec_.add_eos : spec_.add_bos) = true;
    }
    return {};
  }

  Status read_post_processor() {
    const value* part = find(root_, "post_processor");
    if (!part) return {};
    constexpr std::string_view kWhere = "post_processor";
    KAPITSA_ASSIGN(const object* step, as_object(*part, kWhere));
    KAPITSA_ASSIGN(const std::string_view type, string_member(*step, "type", kWhere));
    if (type != "Sequence") return read_processor(*step, type);
    const value* list = find(*step, "processors");
    if (!list) return corrupt(kWhere, "expected an array 'processors'");
    KAPITSA_ASSIGN(const array* steps, as_array(*list, kWhere));
    for (const value& inner : *steps) {
      KAPITSA_ASSIGN(const object* processor, as_object(inner, kWhere));
      KAPITSA_ASSIGN(const std::string_view inner_type, string_member(*processor, "type", kWhere));
      KAPITSA_TRY(read_processor(*processor, inner_type));
    }
    return {};
  }

  Status read_processor(const object& step, std::string_view type) {
    if (type == "ByteLevel") return {};  // about offsets only
    if (type == "TemplateProcessing") return read_template(step);
    return unsupported("post_processor", "expected ByteLevel or TemplateProcessing");
  }

  // -1 when there is no such token.
  int32_t id_of(std::string_view token) const {
    const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), token);
    return found == spec_.tokens.end() ? -1 : static_cast<int32_t>(found - spec_.tokens.begin());
  }

  void apply_config() {
    if (!config_.bos.empty()) spec_.bos = id_of(config_.bos);
    if (!config_.eos.empty()) spec_.eos = id_of(config_.eos);
    if (!config_.pad.empty()) spec_.pad = id_of(config_.pad);
    if (config_.add_bos) spec_.add_bos = *config_.add_bos;
    if (config_.add_eos) spec_.add_eos = *config_.add_eos;
  }

  const object& root_;
  const TokenizerConfig& config_;
  TokenizerSpec spec_;
  std::vector<bool> is_taken_;  // by id: whether the file names it
  size_t n_entries_ = 0;
  bool byte_fallback_ = false;
};

// A special token is a string, or an object with its text as "content".
std::string token_text(const object& root, std::string_view key) {
  const value* found = find(root, key);
  if (found && found->is_object()) found = find(found->get_object(), "content");
  return found && found->is_string() ? std::string(view(found->get_string())) : std::string();
}

std::optional<bool> optional_bool(const object& root, std::string_view key) {
  const value* found = find(root, key);
  return found && found->is_bool() ? std::optional<bool>(found->get_bool()) : std::nullopt;
}

Result<std::string> default_template(const object& root) {
  const value* found = find(root, "chat_template");
  if (!found || found->is_null()) return std::string();
  if (found->is_string()) return std::string(view(found->get_string()));
  if (const array* named = found->if_array()) {
    for (const value& item : *named)
      if (item.is_object() && token_text(item.get_object(), "name") == "default")
        return token_text(item.get_object(), "template");
  }
  return Error{ErrorCode::corrupt_file,
               "tokenizer_config.json: key 'chat_template': expected a template or a list with one "
               "named 'default', found another value"};
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(std::string_view json) {
  KAPITSA_ASSIGN(const value document,
                 parse_json(json, "tokenizer_config.json", {.max_bytes = kLimits.max_bytes}));
  const object* root = document.if_object();
  if (!root)
    return Error{ErrorCode::corrupt_file, "tokenizer_config.json: expected an object at the top"};
  TokenizerConfig config;
  config.bos = token_text(*root, "bos_token");
  config.eos = token_text(*root, "eos_token");
  config.pad = token_text(*root, "pad_token");
  config.add_bos = optional_bool(*root, "add_bos_token");
  config.add_eos = optional_bool(*root, "add_eos_token");
  KAPITSA_ASSIGN(config.chat_template, default_template(*root));
  return config;
}

Result<Tokenizer> read_tokenizer_json(std::string_view json, const TokenizerConfig& config) {
  KAPITSA_ASSIGN(const value document, parse_json(json, "tokenizer.json", kLimits));
  const object* root = document.if_object();
  if (!root) return corrupt("file", "expected an object at the top");
  return Reader(*root, config).run();
}

}  // namespace kapitsa::text
