// The unigram model of SentencePiece: of all ways to cut a text into pieces of the vocabulary, the
// one with the highest sum of scores (Kudo 2018). Works on ids; spelling out unknown text is the
// tokenizer's business.
#pragma once

#include "text/bpe.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace kapitsa::text {

class Unigram {
public:
  // A piece that is given twice keeps its first id.
  void add(std::string_view piece, int32_t id, double score);

  struct Piece {
    int32_t id = -1;   // -1: unknown text, a run of code points that no piece covers
    size_t begin = 0;  // bytes
    size_t length = 0;
  };
  void encode(std::string_view text, std::vector<Piece>& out) const;

private:
  // Edges of a trie over bytes: (node, byte) -> node. Node 0 is the root.
  MergeTable edges_;
  std::vector<int32_t> node_piece_{-1};  // by node: index into ids_ and scores_, -1 for none
  std::vector<int32_t> ids_;
  std::vector<double> scores_;
  double min_score_ = 0;
};

}  // namespace kapitsa::text
