// Text to token ids and back to bytes. A TokenizerSpec holds plain values that the caller reads
// from a model file; Tokenizer checks them once, copies what it needs, and is then immutable and
// safe to use from several threads. Text that a user wrote can never become a control token.
#pragma once

#include "base/result.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/special_tokens.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kapitsa::text {

enum class TokenizerModel : uint8_t {
  bpe_bytes,  // GPT-2 byte-level BPE: ranks from `merges`
  spm_bpe,    // SentencePiece BPE: ranks from `scores`
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

// Borrowed strings must live until Tokenizer::create returns. An id of -1 means there is none.
struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::bpe_bytes;
  std::string pre;               // name of a known pre-tokenizer, used when `split` is empty
  std::vector<SplitRule> split;  // rules from tokenizer.json, instead of `pre`
  std::vector<std::string_view> tokens;  // by id, spelled as in the file
  std::vector<TokenType> types;          // empty: all normal
  std::vector<std::string_view> merges;  // "left right", best first
  std::vector<float> scores;             // by id
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;
  int32_t unk = -1;
  int32_t pad = -1;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  bool ignore_merges = false;  // a piece that is itself a token is not split
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

private:
  using TokenMap = std::unordered_map<std::string_view, int32_t>;

  Tokenizer() = default;
  Status load_tokens(const TokenizerSpec& spec);
  Status load_merges(const TokenizerSpec& spec, const TokenMap& by_text);
  bool found_everywhere(int32_t id) const { return everywhere_[static_cast<size_t>(id)]; }
  Status encode_plain(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& symbols,
                    std::vector<int32_t>& ids) const;

  TokenizerModel model_ = TokenizerModel::bpe_bytes;
  std::vector<char> bytes_;   // bytes of all tokens, back to back
  std::vector<size_t> ends_;  // by id: end in bytes_
  std::vector<TokenType> types_;
  std::vector<bool> everywhere_;         // by id: found in untrusted text too
  TokenMap by_bytes_;                    // normal tokens, for ignore_merges; views into bytes_
  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary lacks the byte
  MergeTable merges_;
  Pretokenizer pretokenizer_;
  SpecialTokens special_;
  int32_t bos_ = -1;
  int32_t eos_ = -1;
  int32_t eot_ = -1;
  int32_t unk_ = -1;
  int32_t pad_ = -1;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool ignore_merges_ = false;
};

}  // namespace kapitsa::text
