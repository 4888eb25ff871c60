// Text to token ids and back to bytes. A TokenizerSpec holds plain values that the caller reads
// from a model file; Tokenizer checks them once, copies what it needs, and is then immutable and
// safe to use from several threads. Text that a user wrote can never become a control token.
#pragma once

#include "base/result.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/special_tokens.h"
#include "text/unigram.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kapitsa::text {

enum class TokenizerModel : uint8_t {
  bpe_bytes,  // GPT-2 byte-level BPE: ranks from `merges`
  spm_bpe,    // BPE over code points: ranks from `merges`, or from `scores` as in SentencePiece
  unigram,    // SentencePiece unigram
};

// Values as in GGUF `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// A token that is looked for in the text before anything else.
struct AddedToken {
  int32_t id = -1;
  std::string_view text;
  bool special = false;      // a control token: hidden in output, never made from user text
  bool single_word = false;  // only between characters that are not word characters
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;
  bool normalized = false;  // looked for after normalization, itself normalized
};

// Borrowed strings must live until Tokenizer::create returns. An id of -1 means there is none.
struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::bpe_bytes;
  std::string pre;  // name of a known pre-tokenizer, used by bpe_bytes when `split` is not given
  std::optional<std::vector<SplitRule>> split;  // from tokenizer.json; empty: text is not cut
  std::vector<std::string_view> tokens;         // by id, spelled as in the file
  std::vector<TokenType> types;                 // empty: all normal
  std::vector<std::string_view> merges;         // "left right", best first
  std::vector<std::pair<std::string_view, std::string_view>> merge_pairs;  // instead of `merges`
  std::vector<double> scores;                                              // by id
  // From tokenizer.json. Without it, tokens of type control, unknown and user_defined are found.
  std::optional<std::vector<AddedToken>> added;
  std::vector<NormalizeRule> normalize;  // before `normalized` added tokens are looked for
  std::vector<NormalizeRule> prepare;    // after that, before the text is cut
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;
  int32_t unk = -1;
  int32_t pad = -1;
  bool add_bos = false;
  bool add_eos = false;
  // GGUF: spm_bpe and unigram write a space in front of text and after each special token.
  bool add_space_prefix = false;
  bool strip_first_space = false;  // decoding drops the space that encoding put in front
  bool ignore_merges = false;      // a piece that is itself a token is not split
  bool fuse_unk = true;            // unknown code points that follow each other are one token
};

// A piece of text with its origin. `trusted` is for template text; false for what a user, a tool or
// a model wrote.
struct Segment {
  std::string text;
  bool trusted = false;
  bool operator==(const Segment&) const = default;
};

struct EncodeOptions {
  bool add_special = false;   // put bos before and eos after, where the model asks for them
  bool parse_special = true;  // control tokens are recognised in trusted segments
};

class Tokenizer {
public:
  static Result<Tokenizer> create(const TokenizerSpec& spec);

  // Segments are tokenized as one text: a token may span their borders, a control token may not
  // touch an untrusted segment. The same holds for user-defined tokens that look like markup, e.g.
  // "<think>"; other user-defined tokens (runs of spaces, digits) are found everywhere.
  Result<std::vector<int32_t>> encode(std::span<const Segment> segments,
                                      const EncodeOptions& options) const;
  // One segment; untrusted unless said otherwise.
  Result<std::vector<int32_t>> encode(std::string_view text, bool trusted = false,
                                      const EncodeOptions& options = {}) const;

  int32_t n_tokens() const { return static_cast<int32_t>(types_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < n_tokens(); }
  // The bytes that a token stands for; a control token's name. Empty for an unknown id.
  std::string_view token_bytes(int32_t id) const;
  TokenType token_type(int32_t id) const;
  // The id of a control or user-defined token by its exact text, -1 if there is none.
  int32_t find_special(std::string_view text) const;

  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  int32_t eot() const { return eot_; }
  int32_t pad() const { return pad_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

  // Whether a decoded text starts with a space that its original did not have.
  bool strips_first_space() const { return strip_first_space_; }

private:
  using TokenMap = std::unordered_map<std::string_view, int32_t>;
  struct Added {
    int32_t id;
    bool everywhere;  // found in untrusted text too
    bool single_word;
    bool lstrip;
    bool rstrip;
  };

  Tokenizer() = default;

  // tokenizer_load.cpp
  Status load_rules(const TokenizerSpec& spec);
  Status load_tokens(const TokenizerSpec& spec, const TokenMap& by_text);
  Result<std::string> decoded_token(const TokenizerSpec& spec, int32_t id) const;
  void load_symbols(const TokenizerSpec& spec);
  Status load_added(const TokenizerSpec& spec);
  Status load_merges(const TokenizerSpec& spec, const TokenMap& by_text);
  Status load_merges_from_scores(const TokenizerSpec& spec, const TokenMap& by_text);

  // tokenizer.cpp
  template <typename Accept, typename TextSink>
  Status cut_at_tokens(const SpecialTokens& tokens, std::string_view text, const Accept& accept,
                       const TextSink& on_text, std::vector<int32_t>& ids) const;
  Status encode_section(std::string_view text, bool at_start, bool trusted,
                        std::vector<int32_t>& ids) const;
  Status encode_plain(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& symbols,
                    std::vector<int32_t>& ids) const;
  void append_codepoints(std::string_view piece, std::vector<int32_t>& symbols) const;
  // The byte tokens of text that has no other token; false, and nothing, when one is missing.
  bool append_bytes(std::string_view text, std::vector<int32_t>& ids) const;

  TokenizerModel model_ = TokenizerModel::bpe_bytes;
  std::vector<char> bytes_;   // bytes of all tokens, back to back
  std::vector<size_t> ends_;  // by id: end in bytes_
  std::vector<TokenType> types_;
  TokenMap by_bytes_;                    // normal tokens, for ignore_merges; into bytes_
  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary lacks the byte
  std::unordered_map<char32_t, int32_t> codepoint_ids_;  // spm_bpe: tokens of one code point
  MergeTable merges_;
  Unigram unigram_;
  Normalizer normalizer_;
  Normalizer preparer_;
  Pretokenizer pretokenizer_;
  std::vector<Added> added_;
  SpecialTokens special_;             // in raw text; ids are places in added_
  SpecialTokens special_normalized_;  // in normalized text
  int32_t bos_ = -1;
  int32_t eos_ = -1;
  int32_t eot_ = -1;
  int32_t unk_ = -1;
  int32_t pad_ = -1;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool strip_first_space_ = false;
  bool ignore_merges_ = false;
  bool fuse_unk_ = true;
};

}  // namespace kapitsa::text
