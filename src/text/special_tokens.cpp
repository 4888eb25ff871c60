// Building the trie. Children are a list: special tokens share long prefixes, so nodes have few.
#include "text/special_tokens.h"

namespace kapitsa::text {

SpecialTokens::SpecialTokens() : nodes_(1) {}

void SpecialTokens::add(std::string_view token, int32_t id) {
  if (token.empty()) return;
  uint32_t node = 0;
  for (const char c : token) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({-1, 0, nodes_[node].first_child, byte});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
  starts_[static_cast<uint8_t>(token[0])] = true;
}

}  // namespace kapitsa::text
