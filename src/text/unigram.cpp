// Viterbi over byte positions, from left to right; the trie gives all pieces that start at one.
#include "text/unigram.h"

#include "text/utf8.h"

#include <algorithm>

namespace kapitsa::text {

namespace {

// An unknown code point costs this much more than the worst piece, as in SentencePiece.
constexpr double kUnknownPenalty = 10.0;

struct Best {
  double score = 0;
  int32_t piece = -1;
  size_t from = 0;
  bool reached = false;
};

}  // namespace

void Unigram::add(std::string_view piece, int32_t id, double score) {
  if (piece.empty()) return;
  int32_t node = 0;
  for (const char c : piece) {
    const int32_t byte = static_cast<uint8_t>(c);
    if (const auto* edge = edges_.find(node, byte)) {
      node = edge->merged;
      continue;
    }
    const auto child = static_cast<int32_t>(node_piece_.size());
    edges_.add(node, byte, {0, child});
    node_piece_.push_back(-1);
    node = child;
  }
  int32_t& place = node_piece_[static_cast<size_t>(node)];
  if (place >= 0) return;
  place = static_cast<int32_t>(ids_.size());
  min_score_ = ids_.empty() ? score : std::min(min_score_, score);
  ids_.push_back(id);
  scores_.push_back(score);
}

void Unigram::encode(std::string_view text, std::vector<Piece>& out) const {
  std::vector<Best> best(text.size() + 1);
  best[0].reached = true;
  const double unknown_score = min_score_ - kUnknownPenalty;
  const auto offer = [&](size_t from, size_t to, double score, int32_t piece) {
    const double total = best[from].score + score;
    if (!best[to].reached || total > best[to].score) best[to] = {total, piece, from, true};
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t codepoint_end = pos + utf8_decode(text, pos).length;
    bool covered = false;
    int32_t node = 0;
    for (size_t end = pos; end < text.size();) {
      const auto* edge = edges_.find(node, static_cast<uint8_t>(text[end]));
      if (!edge) break;
      node = edge->merged;
      ++end;
      const int32_t piece = node_piece_[static_cast<size_t>(node)];
      if (piece < 0) continue;
      offer(pos, end, scores_[static_cast<size_t>(piece)], piece);
      covered = covered || end == codepoint_end;
    }
    if (!covered) offer(pos, codepoint_end, unknown_score, -1);
    pos = codepoint_end;
  }

  const auto first = static_cast<std::ptrdiff_t>(out.size());
  for (size_t end = text.size(); end > 0; end = best[end].from) {
    const Best& last = best[end];
    const int32_t id = last.piece < 0 ? -1 : ids_[static_cast<size_t>(last.piece)];
    // Adjacent unknown code points are one unknown piece.
    if (id < 0 && static_cast<std::ptrdiff_t>(out.size()) > first && out.back().id < 0) {
      out.back().length += out.back().begin - last.from;
      out.back().begin = last.from;
    } else {
      out.push_back({id, last.from, end - last.from});
    }
  }
  std::reverse(out.begin() + first, out.end());
}

}  // namespace kapitsa::text
