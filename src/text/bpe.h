// Byte-pair merging: replaces the best-ranked adjacent pair until no pair can be merged, in
// O(n log n) for a piece of n symbols. Works on token ids only; what a symbol means is the
// tokenizer's business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kapitsa::text {

// (left, right) -> (rank, merged). Lower ranks merge first. Open addressing: one cache line for
// most lookups.
class MergeTable {
public:
  struct Merge {
    int32_t rank = 0;
    int32_t merged = -1;
  };

  explicit MergeTable(size_t expected = 0);
  // The first rank given for a pair counts. Ids are not negative.
  void add(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;
  size_t size() const { return size_; }

private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  size_t slot_of(uint64_t key) const;
  void grow(size_t n_slots);

  std::vector<Slot> slots_;  // size is a power of two
  size_t size_ = 0;
};

// Merges `symbols` and appends the result to `out`.
void bpe_merge(const MergeTable& merges, std::span<const int32_t> symbols,
               std::vector<int32_t>& out);

}  // namespace kapitsa::text
