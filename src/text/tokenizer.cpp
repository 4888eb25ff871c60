// Encoding in three steps: special tokens are cut out where they are allowed, the rest is cut into
// pieces by the pre-tokenizer, and each piece is merged. Owns the checks of a TokenizerSpec. Bytes
// that are not valid UTF-8 skip the pre-tokenizer and go through the byte alphabet.
#include "text/tokenizer.h"

#include "text/byte_alphabet.h"
#include "text/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::text {

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;       // positions are 32 bits wide
constexpr size_t kMaxTokens = size_t{1} << 24;          // 60 times the largest vocabulary known
constexpr size_t kMaxSpecialTokenBytes = size_t{4096};  // bounds the work at one text position

Error corrupt(std::string message) {
  return {ErrorCode::corrupt_file, "tokenizer: " + std::move(message)};
}

// A borrowed token may be long or hold anything; this is for messages only.
std::string quoted(std::string_view token) {
  std::string out;
  for (const char c : token.substr(0, 40))
    out += static_cast<uint8_t>(c) < 0x20 || c == 0x7F ? fmt::format("\\x{:02X}", c)
                                                       : std::string(1, c);
  return fmt::format("'{}{}'", out, token.size() > 40 ? "..." : "");
}

bool is_markup(std::string_view token) {
  return token.size() > 2 && ((token.front() == '<' && token.back() == '>') ||
                              (token.front() == '[' && token.back() == ']'));
}

Status check_id(const char* name, int32_t id, size_t n_tokens) {
  if (id >= -1 && (id < 0 || static_cast<size_t>(id) < n_tokens)) return {};
  return corrupt(fmt::format("{} token id is {}, expected below {}", name, id, n_tokens));
}

// The untrusted byte ranges of joined segments, in order.
class UntrustedRanges {
public:
  void add(size_t begin, size_t end) {
    if (begin == end) return;
    if (!ranges_.empty() && ranges_.back().second == begin)
      ranges_.back().second = end;
    else
      ranges_.emplace_back(begin, end);
  }
  bool overlaps(size_t begin, size_t end) const {
    const auto it = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                     [](size_t pos, const auto& r) { return pos < r.second; });
    return it != ranges_.end() && it->first < end;
  }

private:
  std::vector<std::pair<size_t, size_t>> ranges_;
};

}  // namespace

Result<Tokenizer> Tokenizer::create(const TokenizerSpec& spec) {
  if (spec.model != TokenizerModel::bpe_bytes)
    return Error{ErrorCode::unsupported, "tokenizer: only byte-level BPE is supported"};
  const size_t n = spec.tokens.size();
  if (n == 0 || n > kMaxTokens)
    return corrupt(fmt::format("{} tokens, expected 1 to {}", n, kMaxTokens));
  if (!spec.types.empty() && spec.types.size() != n)
    return corrupt(fmt::format("{} token types for {} tokens", spec.types.size(), n));
  if (!spec.scores.empty() && spec.scores.size() != n)
    return corrupt(fmt::format("{} scores for {} tokens", spec.scores.size(), n));
  KAPITSA_TRY(check_id("bos", spec.bos, n));
  KAPITSA_TRY(check_id("eos", spec.eos, n));
  KAPITSA_TRY(check_id("eot", spec.eot, n));
  KAPITSA_TRY(check_id("unknown", spec.unk, n));
  KAPITSA_TRY(check_id("padding", spec.pad, n));

  Tokenizer t;
  t.model_ = spec.model;
  t.bos_ = spec.bos;
  t.eos_ = spec.eos;
  t.eot_ = spec.eot;
  t.unk_ = spec.unk;
  t.pad_ = spec.pad;
  t.add_bos_ = spec.add_bos && spec.bos >= 0;
  t.add_eos_ = spec.add_eos && spec.eos >= 0;
  // Llama 3 files carry this flag in tokenizer.json; GGUF has it only through the name.
  t.ignore_merges_ = spec.ignore_merges || (spec.split.empty() && implies_ignore_merges(spec.pre));

  const std::vector<SplitRule> rules =
      spec.split.empty() ? pretokenizer_rules(spec.pre) : spec.split;
  if (rules.empty())
    return Error{ErrorCode::unsupported,
                 fmt::format("tokenizer: unknown pre-tokenizer {}", quoted(spec.pre))};
  KAPITSA_ASSIGN(t.pretokenizer_, Pretokenizer::compile(rules));
  KAPITSA_TRY(t.load_tokens(spec));
  return t;
}

Status Tokenizer::load_tokens(const TokenizerSpec& spec) {
  const size_t n = spec.tokens.size();
  types_ = spec.types.empty() ? std::vector<TokenType>(n, TokenType::normal) : spec.types;
  everywhere_.resize(n);
  TokenMap by_text(n);
  for (size_t i = 0; i < n; ++i) {
    const std::string_view token = spec.tokens[i];
    const auto id = static_cast<int32_t>(i);
    by_text.emplace(token, id);
    std::string decoded(token);
    switch (types_[i]) {
    case TokenType::normal:
    case TokenType::byte:
      if (auto bytes = alphabet_to_bytes(token)) decoded = std::move(*bytes);
      break;
    case TokenType::unused: break;
    case TokenType::unknown:
    case TokenType::control:
    case TokenType::user_defined:
      if (token.size() > kMaxSpecialTokenBytes)
        return corrupt(fmt::format("special token {} has {} bytes, expected at most {}", id,
                                   token.size(), kMaxSpecialTokenBytes));
      everywhere_[i] = types_[i] == TokenType::user_defined && !is_markup(token);
      special_.add(token, id);
      break;
    default:
      return corrupt(
          fmt::format("token {} has type {}, expected 1 to 6", id, static_cast<int>(types_[i])));
    }
    bytes_.insert(bytes_.end(), decoded.begin(), decoded.end());
    ends_.push_back(bytes_.size());
  }
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < n_tokens(); ++id) {
    if (token_type(id) != TokenType::normal && token_type(id) != TokenType::byte) continue;
    const std::string_view bytes = token_bytes(id);
    if (bytes.size() == 1 && byte_ids_[static_cast<uint8_t>(bytes[0])] < 0)
      byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
    if (ignore_merges_) by_bytes_.emplace(bytes, id);
  }
  return load_merges(spec, by_text);
}

Status Tokenizer::load_merges(const TokenizerSpec& spec, const TokenMap& by_text) {
  merges_ = MergeTable(spec.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos)
      return corrupt(
          fmt::format("merge {} is {}, expected two tokens and a space", rank, quoted(merge)));
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    merged.assign(left);
    merged += right;
    const auto l = by_text.find(left);
    const auto r = by_text.find(right);
    const auto m = by_text.find(merged);
    if (l == by_text.end() || r == by_text.end() || m == by_text.end())
      return corrupt(fmt::format("merge {} is {}, but {} is not a token", rank, quoted(merge),
                                 quoted(l == by_text.end()   ? left
                                        : r == by_text.end() ? right
                                                             : merged)));
    merges_.add(l->second, r->second, {static_cast<int32_t>(rank), m->second});
  }
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool trusted,
                                               const EncodeOptions& options) const {
  const Segment segment{std::string(text), trusted};
  return encode({&segment, 1}, options);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::span<const Segment> segments,
                                               const EncodeOptions& options) const {
  std::string text;
  UntrustedRanges untrusted;
  for (const Segment& segment : segments) {
    if (!segment.trusted || !options.parse_special)
      untrusted.add(text.size(), text.size() + segment.text.size());
    text += segment.text;
  }
  if (text.size() > kMaxTextBytes)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("text of {} bytes, expected at most {}", text.size(), kMaxTextBytes)};

  std::vector<int32_t> ids;
  if (options.add_special && add_bos_) ids.push_back(bos_);
  const auto accept = [&](const SpecialTokens::Match& match) {
    return found_everywhere(match.id) ||
           !untrusted.overlaps(match.begin, match.begin + match.length);
  };
  size_t done = 0;
  while (done < text.size()) {
    const auto match = special_.find(text, done, accept);
    const size_t end = match ? match->begin : text.size();
    KAPITSA_TRY(encode_plain(std::string_view(text).substr(done, end - done), ids));
    if (!match) break;
    ids.push_back(match->id);
    done = match->begin + match->length;
  }
  if (options.add_special && add_eos_) ids.push_back(eos_);
  return ids;
}

Status Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<std::string_view> pieces;
  for (size_t pos = 0; pos < text.size();) {
    const size_t valid_end = utf8_valid_prefix(text, pos);
    KAPITSA_TRY(pretokenizer_.split(text.substr(pos, valid_end - pos), pieces));
    pos = valid_end;
    if (pos == text.size()) break;
    const size_t length = utf8_decode(text, pos).length;
    pieces.push_back(text.substr(pos, length));
    pos += length;
  }
  std::vector<int32_t> symbols;
  for (std::string_view piece : pieces)
    encode_piece(piece, symbols, ids);
  return {};
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& symbols,
                             std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = by_bytes_.find(piece); whole != by_bytes_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  symbols.clear();
  for (const char c : piece) {
    // Some vocabularies lack bytes that text hardly ever has. Like the reference implementation,
    // such a byte is dropped: the unknown token is often a control token, which user text must not
    // become.
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) symbols.push_back(id);
  }
  bpe_merge(merges_, symbols, ids);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (!contains(id)) return {};
  const auto i = static_cast<size_t>(id);
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return {bytes_.data() + begin, ends_[i] - begin};
}

TokenType Tokenizer::token_type(int32_t id) const {
  return contains(id) ? types_[static_cast<size_t>(id)] : TokenType::unused;
}

int32_t Tokenizer::find_special(std::string_view text) const {
  const auto match = special_.find(
      text, 0, [&](const auto& m) { return m.begin == 0 && m.length == text.size(); });
  return match ? match->id : -1;
}

}  // namespace kapitsa::text
