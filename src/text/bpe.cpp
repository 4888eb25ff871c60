// The symbols of a piece are a linked list in one array; candidate pairs wait in a heap ordered by
// (rank, position). A candidate is stale, and skipped, when the pair at its position no longer has
// its rank.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace kapitsa::text {

namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

struct Symbol {
  int32_t id;  // -1: merged into the symbol on its left
  int32_t previous;
  int32_t next;
};

// Words are short: for them, looking at every pair again after each merge beats a heap.
constexpr size_t kShortPiece = 24;

void merge_short(const MergeTable& merges, std::span<const int32_t> symbols,
                 std::vector<int32_t>& out) {
  const size_t base = out.size();
  out.insert(out.end(), symbols.begin(), symbols.end());
  while (out.size() > base + 1) {
    const MergeTable::Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = base; i + 1 < out.size(); ++i) {
      const MergeTable::Merge* merge = merges.find(out[i], out[i + 1]);
      if (merge && (!best || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (!best) return;
    out[at] = best->merged;
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

MergeTable::MergeTable(size_t expected) {
  grow(std::bit_ceil(std::max<size_t>(16, expected * 2)));
}

size_t MergeTable::slot_of(uint64_t key) const {
  const uint64_t mask = slots_.size() - 1;
  uint64_t slot = (key * 0x9E3779B97F4A7C15u) >> 32;
  while (slots_[slot & mask].key != kEmpty && slots_[slot & mask].key != key)
    ++slot;
  return slot & mask;
}

void MergeTable::grow(size_t n_slots) {
  std::vector<Slot> old(n_slots);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.key != kEmpty) slots_[slot_of(slot.key)] = slot;
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  if ((size_ + 1) * 2 > slots_.size()) grow(slots_.size() * 2);
  const uint64_t key = pair_key(left, right);
  Slot& slot = slots_[slot_of(key)];
  if (slot.key == key) return;
  slot = {key, merge};
  ++size_;
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  return slot.key == kEmpty ? nullptr : &slot.merge;
}

void bpe_merge(const MergeTable& merges, std::span<const int32_t> symbols,
               std::vector<int32_t>& out) {
  if (symbols.size() <= kShortPiece) return merge_short(merges, symbols, out);
  const auto n = static_cast<int32_t>(symbols.size());
  std::vector<Symbol> list(symbols.size());
  for (int32_t i = 0; i < n; ++i)
    list[static_cast<size_t>(i)] = {symbols[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
  const auto at = [&list](int32_t i) -> Symbol& { return list[static_cast<size_t>(i)]; };

  // Rank above position in one number, so that the smallest merges first.
  const auto candidate = [&](int32_t left, const MergeTable::Merge& merge) {
    return (static_cast<uint64_t>(merge.rank) << 32) | static_cast<uint32_t>(left);
  };
  std::vector<uint64_t> initial;
  for (int32_t i = 0; i + 1 < n; ++i)
    if (const auto* merge = merges.find(at(i).id, at(i + 1).id))
      initial.push_back(candidate(i, *merge));
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>{},
                                                                             std::move(initial));
  const auto push = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    if (const auto* merge = merges.find(at(left).id, at(right).id))
      queue.push(candidate(left, *merge));
  };

  while (!queue.empty()) {
    const uint64_t top = queue.top();
    queue.pop();
    const auto position = static_cast<int32_t>(top & 0xFFFFFFFFu);
    Symbol& left = at(position);
    if (left.id < 0 || left.next < 0) continue;
    const auto* merge = merges.find(left.id, at(left.next).id);
    if (!merge || static_cast<uint64_t>(merge->rank) != top >> 32) continue;
    Symbol& right = at(left.next);
    left.id = merge->merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = position;
    push(left.previous, position);
    push(position, left.next);
  }
  for (int32_t i = 0; i >= 0; i = at(i).next)
    out.push_back(at(i).id);
}

}  // namespace kapitsa::text
