// Finds special and other added tokens in text: leftmost first, longest at one place. Decides
// nothing about trust; the caller says which matches it accepts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kapitsa::text {

// A byte trie over the token texts. Immutable after the last add().
class SpecialTokens {
public:
  struct Match {
    size_t begin = 0;  // byte offset in the text
    size_t length = 0;
    int32_t id = -1;
  };

  SpecialTokens();
  // An empty text is ignored; of equal texts the first counts.
  void add(std::string_view token, int32_t id);
  bool empty() const { return nodes_.size() == 1; }

  // The first match at or after `pos` for which accept(match) is true; at one place the longest
  // accepted one.
  template <typename Accept>
  std::optional<Match> find(std::string_view text, size_t pos, const Accept& accept) const {
    for (; pos < text.size(); ++pos) {
      if (!starts_[static_cast<uint8_t>(text[pos])]) continue;
      std::optional<Match> best;
      uint32_t node = 0;
      for (size_t i = pos; i < text.size(); ++i) {
        node = child(node, static_cast<uint8_t>(text[i]));
        if (node == 0) break;
        const Match match{pos, i + 1 - pos, nodes_[node].id};
        if (match.id >= 0 && accept(match)) best = match;
      }
      if (best) return best;
    }
    return std::nullopt;
  }

private:
  struct Node {
    int32_t id = -1;
    uint32_t first_child = 0;  // 0: none
    uint32_t sibling = 0;
    uint8_t byte = 0;
  };
  uint32_t child(uint32_t node, uint8_t byte) const {
    for (uint32_t c = nodes_[node].first_child; c != 0; c = nodes_[c].sibling)
      if (nodes_[c].byte == byte) return c;
    return 0;
  }

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::array<bool, 256> starts_{};
};

}  // namespace kapitsa::text
