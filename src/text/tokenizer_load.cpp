// From a TokenizerSpec to the tables of a Tokenizer, with all checks: what comes out can be used
// without another one. Encoding is in tokenizer.cpp.
#include "text/byte_alphabet.h"
#include "text/quoted.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kapitsa::text {

namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;          // 60 times the largest vocabulary known
constexpr size_t kMaxSpecialTokenBytes = size_t{4096};  // bounds the work at one text position
constexpr size_t kMaxScoredTokenBytes = size_t{512};    // all ways to cut one are tried
constexpr std::string_view kSpaceMark = "\u2581";       // how SentencePiece writes a space

Error corrupt(std::string message) {
  return {ErrorCode::corrupt_file, std::move(message)};
}

// Templates and parsers give such tokens a meaning, so that user text must not become one.
bool is_markup(std::string_view token) {
  return token.size() > 2 && ((token.front() == '<' && token.back() == '>') ||
                              (token.front() == '[' && token.back() == ']'));
}

Status check_id(const char* name, int32_t id, size_t n_tokens) {
  if (id >= -1 && (id < 0 || static_cast<size_t>(id) < n_tokens)) return {};
  return corrupt(fmt::format("{} token id is {}, expected below {}", name, id, n_tokens));
}

Status check_spec(const TokenizerSpec& spec) {
  const size_t n = spec.tokens.size();
  if (n == 0 || n > kMaxTokens)
    return corrupt(fmt::format("{} tokens, expected 1 to {}", n, kMaxTokens));
  if (!spec.types.empty() && spec.types.size() != n)
    return corrupt(fmt::format("{} token types for {} tokens", spec.types.size(), n));
  for (size_t i = 0; i < spec.types.size(); ++i)
    if (spec.types[i] < TokenType::normal || spec.types[i] > TokenType::byte)
      return corrupt(
          fmt::format("token {} has type {}, expected 1 to 6", i, static_cast<int>(spec.types[i])));
  if (!spec.scores.empty() && spec.scores.size() != n)
    return corrupt(fmt::format("{} scores for {} tokens", spec.scores.size(), n));
  for (size_t i = 0; i < spec.scores.size(); ++i)
    if (!std::isfinite(spec.scores[i]))
      return corrupt(fmt::format("the score of token {} is not a finite number", i));
  const bool needs_scores =
      spec.model == TokenizerModel::unigram ||
      (spec.model == TokenizerModel::spm_bpe && !spec.split && spec.merges.empty());
  if (needs_scores && spec.scores.empty()) return corrupt("the vocabulary has no scores");
  if (spec.ignore_merges && spec.model != TokenizerModel::bpe_bytes)
    return Error{ErrorCode::unsupported, "ignore_merges is supported for byte-level BPE only"};
  KAPITSA_TRY(check_id("bos", spec.bos, n));
  KAPITSA_TRY(check_id("eos", spec.eos, n));
  KAPITSA_TRY(check_id("eot", spec.eot, n));
  KAPITSA_TRY(check_id("unknown", spec.unk, n));
  KAPITSA_TRY(check_id("padding", spec.pad, n));
  return {};
}

// "<0x0A>" -> 10.
std::optional<uint8_t> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    constexpr std::string_view kDigits = "0123456789ABCDEFabcdef";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(digit < 16 ? digit : digit - 6);
  }
  return static_cast<uint8_t>(value);
}

// Whether the model makes the token itself. All others are found in the text as a whole or never.
bool is_piece(TokenType type) {
  return type == TokenType::normal;
}

// The first token of a text counts.
std::unordered_map<std::string_view, int32_t> index_by_text(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, int32_t> by_text(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i)
    by_text.emplace(spec.tokens[i], static_cast<int32_t>(i));
  return by_text;
}

// What GGUF vocabularies with the names of SentencePiece models mean.
std::vector<NormalizeRule> sentencepiece_rules(bool add_space_prefix) {
  std::vector<NormalizeRule> rules;
  if (add_space_prefix) rules.push_back({NormalizeRule::Kind::prepend, "", " "});
  rules.push_back({NormalizeRule::Kind::replace, " ", std::string(kSpaceMark)});
  return rules;
}

}  // namespace

Result<Tokenizer> Tokenizer::create(const TokenizerSpec& spec) {
  KAPITSA_TRY(check_spec(spec));
  Tokenizer t;
  t.model_ = spec.model;
  t.bos_ = spec.bos;
  t.eos_ = spec.eos;
  t.eot_ = spec.eot;
  t.unk_ = spec.unk;
  t.pad_ = spec.pad;
  t.add_bos_ = spec.add_bos && spec.bos >= 0;
  t.add_eos_ = spec.add_eos && spec.eos >= 0;
  t.fuse_unk_ = spec.fuse_unk;
  t.strip_first_space_ = spec.strip_first_space || spec.add_space_prefix;
  // tokenizer.json has this flag; GGUF only has the name.
  t.ignore_merges_ = spec.ignore_merges || (spec.model == TokenizerModel::bpe_bytes &&
                                            !spec.split && implies_ignore_merges(spec.pre));
  KAPITSA_TRY(t.load_rules(spec));
  const TokenMap by_text = index_by_text(spec);
  KAPITSA_TRY(t.load_tokens(spec, by_text));
  return t;
}

Status Tokenizer::load_rules(const TokenizerSpec& spec) {
  std::vector<SplitRule> split;
  if (spec.split) {
    split = *spec.split;
  } else if (spec.model == TokenizerModel::bpe_bytes) {
    split = pretokenizer_rules(spec.pre);
    if (split.empty())
      return Error{ErrorCode::unsupported,
                   fmt::format("unknown pre-tokenizer {}", quoted(spec.pre))};
  }
  KAPITSA_ASSIGN(pretokenizer_, Pretokenizer::compile(split));
  const bool from_gguf = !spec.split && spec.model != TokenizerModel::bpe_bytes;
  const auto rules = from_gguf ? sentencepiece_rules(spec.add_space_prefix) : spec.normalize;
  KAPITSA_ASSIGN(normalizer_, Normalizer::compile(rules));
  KAPITSA_ASSIGN(preparer_, Normalizer::compile(spec.prepare));
  return {};
}

Status Tokenizer::load_tokens(const TokenizerSpec& spec, const TokenMap& by_text) {
  const size_t n = spec.tokens.size();
  types_ = spec.types.empty() ? std::vector<TokenType>(n, TokenType::normal) : spec.types;
  for (size_t i = 0; i < n; ++i) {
    // Vocabularies without types write byte tokens all the same.
    if (spec.types.empty() && model_ != TokenizerModel::bpe_bytes && byte_of(spec.tokens[i]))
      types_[i] = TokenType::byte;
    KAPITSA_ASSIGN(const std::string bytes, decoded_token(spec, static_cast<int32_t>(i)));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    ends_.push_back(bytes_.size());
  }
  KAPITSA_TRY(load_added(spec));
  load_symbols(spec);
  if (model_ == TokenizerModel::unigram) return {};
  if (model_ == TokenizerModel::spm_bpe && spec.merges.empty() && !spec.scores.empty())
    return load_merges_from_scores(spec, by_text);
  return load_merges(spec, by_text);
}

Result<std::string> Tokenizer::decoded_token(const TokenizerSpec& spec, int32_t id) const {
  const std::string_view token = spec.tokens[static_cast<size_t>(id)];
  const TokenType type = types_[static_cast<size_t>(id)];
  if (model_ == TokenizerModel::bpe_bytes) {
    if (type == TokenType::normal || type == TokenType::byte)
      if (auto bytes = alphabet_to_bytes(token)) return std::move(*bytes);
    return std::string(token);
  }
  if (type == TokenType::byte) {
    const auto byte = byte_of(token);
    if (!byte)
      return corrupt(fmt::format("byte token {} is {}, expected '<0x00>'", id, quoted(token)));
    return std::string(1, static_cast<char>(*byte));
  }
  if (!is_piece(type) && type != TokenType::user_defined) return std::string(token);
  std::string text;
  for (size_t pos = 0; pos < token.size();) {
    const bool is_mark = token.substr(pos).starts_with(kSpaceMark);
    text += is_mark ? ' ' : token[pos];
    pos += is_mark ? kSpaceMark.size() : 1;
  }
  return text;
}

void Tokenizer::load_symbols(const TokenizerSpec& spec) {
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < n_tokens(); ++id) {
    const TokenType type = token_type(id);
    const std::string_view bytes = token_bytes(id);
    const std::string_view token = spec.tokens[static_cast<size_t>(id)];
    const bool is_byte =
        type == TokenType::byte || (model_ == TokenizerModel::bpe_bytes && is_piece(type));
    if (is_byte && bytes.size() == 1 && byte_ids_[static_cast<uint8_t>(bytes[0])] < 0)
      byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
    if (ignore_merges_ && type == TokenType::normal) by_bytes_.emplace(bytes, id);
    if (model_ == TokenizerModel::unigram && is_piece(type))
      unigram_.add(token, id, spec.scores[static_cast<size_t>(id)]);
    if (model_ == TokenizerModel::spm_bpe && is_piece(type) && !token.empty()) {
      const Utf8Step step = utf8_decode(token, 0);
      if (step.valid && step.length == token.size()) codepoint_ids_.emplace(step.codepoint, id);
    }
  }
}

Status Tokenizer::load_added(const TokenizerSpec& spec) {
  std::vector<AddedToken> tokens;
  // SentencePiece looks for user-defined tokens, which it spells with space marks, after it has
  // written the marks.
  const bool finds_marks = !spec.added && model_ != TokenizerModel::bpe_bytes;
  if (spec.added) {
    tokens = *spec.added;
  } else {
    for (int32_t id = 0; id < n_tokens(); ++id) {
      const TokenType type = token_type(id);
      const bool is_control = type == TokenType::control || type == TokenType::unknown;
      if (!is_control && type != TokenType::user_defined) continue;
      AddedToken token{id, spec.tokens[static_cast<size_t>(id)], is_control};
      token.normalized = finds_marks && !is_control;
      tokens.push_back(token);
    }
  }
  for (const AddedToken& token : tokens) {
    KAPITSA_TRY(check_id("added", token.id, types_.size()));
    if (token.id < 0) return corrupt("an added token has no id");
    if (token.text.size() > kMaxSpecialTokenBytes)
      return corrupt(fmt::format("special token {} has {} bytes, expected at most {}", token.id,
                                 token.text.size(), kMaxSpecialTokenBytes));
    std::string text(token.text);
    if (token.normalized && !finds_marks) {
      KAPITSA_ASSIGN(text, normalizer_.apply(std::move(text), true));
    }
    const auto place = static_cast<int32_t>(added_.size());
    (token.normalized ? special_normalized_ : special_).add(text, place);
    added_.push_back({token.id, !token.special && !is_markup(token.text), token.single_word,
                      token.lstrip, token.rstrip});
  }
  return {};
}

Status Tokenizer::load_merges(const TokenizerSpec& spec, const TokenMap& by_text) {
  const size_t n = spec.merge_pairs.empty() ? spec.merges.size() : spec.merge_pairs.size();
  merges_ = MergeTable(n);
  std::string merged;
  for (size_t rank = 0; rank < n; ++rank) {
    std::string_view left;
    std::string_view right;
    if (spec.merge_pairs.empty()) {
      const std::string_view merge = spec.merges[rank];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos)
        return corrupt(
            fmt::format("merge {} is {}, expected two tokens and a space", rank, quoted(merge)));
      left = merge.substr(0, space);
      right = merge.substr(space + 1);
    } else {
      std::tie(left, right) = spec.merge_pairs[rank];
    }
    merged.assign(left);
    merged += right;
    std::array<int32_t, 3> ids{};
    const std::array<std::string_view, 3> texts{left, right, merged};
    for (size_t i = 0; i < 3; ++i) {
      const auto found = by_text.find(texts[i]);
      if (found == by_text.end())
        return corrupt(fmt::format("merge {} is {} and {}, but {} is not a token", rank,
                                   quoted(left), quoted(right), quoted(texts[i])));
      ids[i] = found->second;
    }
    merges_.add(ids[0], ids[1], {static_cast<int32_t>(rank), ids[2]});
  }
  return {};
}

// SentencePiece merges two symbols when their text is a token, and first where that token's score
// is highest: the same as a merge list of all the ways to cut every token in two.
Status Tokenizer::load_merges_from_scores(const TokenizerSpec& spec, const TokenMap& by_text) {
  std::vector<int32_t> order;
  for (int32_t id = 0; id < n_tokens(); ++id)
    if (is_piece(token_type(id))) order.push_back(id);
  const auto score = [&](int32_t id) { return spec.scores[static_cast<size_t>(id)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  int32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    // Tokens of one score merge from left to right, so they share a rank.
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    const std::string_view token = spec.tokens[static_cast<size_t>(order[i])];
    if (token.size() > kMaxScoredTokenBytes)
      return corrupt(fmt::format("token {} has {} bytes, expected at most {}", order[i],
                                 token.size(), kMaxScoredTokenBytes));
    const auto whole = by_text.find(token);
    for (size_t cut = 0; cut < token.size();) {
      cut += utf8_decode(token, cut).length;
      if (cut >= token.size()) break;
      const auto left = by_text.find(token.substr(0, cut));
      const auto right = by_text.find(token.substr(cut));
      if (left != by_text.end() && right != by_text.end() && is_piece(token_type(left->second)) &&
          is_piece(token_type(right->second)))
        merges_.add(left->second, right->second, {rank, whole->second});
    }
  }
  return {};
}

}  // namespace kapitsa::text
