// Encoding: special tokens are cut out where they are allowed, what lies between is normalized, cut
// into pieces by the pre-tokenizer, and each piece goes through the model. Bytes that are not valid
// UTF-8 are pieces of their own.
#include "text/tokenizer.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::text {

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // positions are 32 bits wide

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

bool word_ends(std::string_view text) {
  size_t begin = text.size();
  for (size_t n = 1; n <= 4 && n <= text.size(); ++n) {
    begin = text.size() - n;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) != 0x80) break;
  }
  if (begin == text.size()) return false;
  const Utf8Step step = utf8_decode(text, begin);
  return step.valid && is_word(step.codepoint);
}

bool word_starts(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Step step = utf8_decode(text, 0);
  return step.valid && is_word(step.codepoint);
}

}  // namespace

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
    return added_[static_cast<size_t>(match.id)].everywhere ||
           !untrusted.overlaps(match.begin, match.begin + match.length);
  };
  const auto on_text = [&](size_t begin, size_t end) {
    return encode_section(std::string_view(text).substr(begin, end - begin), begin == 0,
                          !untrusted.overlaps(begin, end), ids);
  };
  KAPITSA_TRY(cut_at_tokens(special_, text, accept, on_text, ids));
  if (options.add_special && add_eos_) ids.push_back(eos_);
  return ids;
}

template <typename Accept, typename TextSink>
Status Tokenizer::cut_at_tokens(const SpecialTokens& tokens, std::string_view text,
                                const Accept& accept, const TextSink& on_text,
                                std::vector<int32_t>& ids) const {
  size_t done = 0;
  for (size_t from = 0; from < text.size();) {
    const auto match = tokens.find(text, from, accept);
    if (!match) break;
    const Added& token = added_[static_cast<size_t>(match->id)];
    size_t begin = match->begin;
    size_t end = match->begin + match->length;
    from = end;
    if (token.single_word && (word_ends(text.substr(0, begin)) || word_starts(text.substr(end))))
      continue;
    if (token.lstrip && begin > done) begin -= trailing_spaces(text.substr(done, begin - done));
    if (token.rstrip) end += leading_spaces(text.substr(end));
    if (begin > done) KAPITSA_TRY(on_text(done, begin));
    ids.push_back(token.id);
    // As in the reference, the search goes on in front of the white space that was taken along.
    done = end;
  }
  if (done < text.size()) KAPITSA_TRY(on_text(done, text.size()));
  return {};
}

Status Tokenizer::encode_section(std::string_view text, bool at_start, bool trusted,
                                 std::vector<int32_t>& ids) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    KAPITSA_ASSIGN(normalized, normalizer_.apply(std::string(text), at_start));
    text = normalized;
  }
  const auto accept = [&](const SpecialTokens::Match& match) {
    return trusted || added_[static_cast<size_t>(match.id)].everywhere;
  };
  const auto on_text = [&](size_t begin, size_t end) -> Status {
    const std::string_view part = text.substr(begin, end - begin);
    if (preparer_.empty()) return encode_plain(part, ids);
    KAPITSA_ASSIGN(const std::string prepared,
                   preparer_.apply(std::string(part), at_start && begin == 0));
    return encode_plain(prepared, ids);
  };
  return cut_at_tokens(special_normalized_, text, accept, on_text, ids);
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
  if (model_ == TokenizerModel::unigram) {
    std::vector<Unigram::Piece> pieces;
    unigram_.encode(piece, pieces);
    for (const auto& [id, begin, length] : pieces) {
      if (id >= 0)
        ids.push_back(id);
      else if (!append_bytes(piece.substr(begin, length), ids) && unk_ >= 0)
        ids.push_back(unk_);
    }
    return;
  }
  symbols.clear();
  if (model_ == TokenizerModel::spm_bpe) {
    append_codepoints(piece, symbols);
  } else {
    for (const char c : piece) {
      // Some vocabularies lack bytes that text hardly ever has. Like the reference implementation,
      // such a byte is dropped: the unknown token is often a control token, which user text must
      // not become.
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) symbols.push_back(id);
    }
  }
  bpe_merge(merges_, symbols, ids);
}

void Tokenizer::append_codepoints(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  for (size_t pos = 0; pos < piece.size();) {
    const Utf8Step step = utf8_decode(piece, pos);
    const auto known = step.valid ? codepoint_ids_.find(step.codepoint) : codepoint_ids_.end();
    if (known != codepoint_ids_.end()) {
      symbols.push_back(known->second);
      after_unknown = false;
    } else if (!append_bytes(piece.substr(pos, step.length), symbols) && unk_ >= 0) {
      if (!fuse_unk_ || !after_unknown) symbols.push_back(unk_);
      after_unknown = true;
    }
    pos += step.length;
  }
}

bool Tokenizer::append_bytes(std::string_view text, std::vector<int32_t>& ids) const {
  const auto id_of = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::any_of(text.begin(), text.end(), [&](char c) { return id_of(c) < 0; })) return false;
  for (const char c : text)
    ids.push_back(id_of(c));
  return true;
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
  const auto whole = [&](const SpecialTokens::Match& match) {
    return match.begin == 0 && match.length == text.size();
  };
  for (const SpecialTokens* tokens : {&special_, &special_normalized_})
    if (const auto match = tokens->find(text, 0, whole))
      return added_[static_cast<size_t>(match->id)].id;
  return -1;
}

}  // namespace kapitsa::text
