// Which slots of the KV cache belong to which token: a pool of fixed-size pages with reference
// counts, and one table per sequence from logical position to physical slot. It holds no tensors; a
// backend indexes its K and V buffers by slot. A page is written only while one table holds it:
// tables share pages, and the first write behind a shared part gets a copy. Engine thread only.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kapitsa::kv {

// Equal to the prefill grid, so that a snapshot at a grid point ends a page.
inline constexpr int kPageTokens = 64;

class PagePool {
public:
  explicit PagePool(int32_t n_pages, int32_t page_tokens = kPageTokens);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  int32_t n_pages() const { return static_cast<int32_t>(references_.size()); }
  int32_t page_tokens() const { return page_tokens_; }
  int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
  int64_t free_tokens() const { return int64_t{n_free()} * page_tokens_; }
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }

private:
  friend class PageTable;

  // Precondition: n_free() > 0.
  int32_t take();
  void add_reference(int32_t page);
  void release(int32_t page);

  int32_t page_tokens_ = kPageTokens;
  std::vector<int32_t> references_;  // (n_pages), 0 = free
  std::vector<int32_t> free_;        // a stack: the page freed last is used first
};

// The contents of one page that the caller must copy before it writes the new tokens.
struct PageCopy {
  int32_t from = 0;
  int32_t to = 0;
  int32_t n_tokens = 0;  // the first slots of the page that hold tokens
};

// The pages of one sequence. Gives them back when destroyed; the pool must live longer.
class PageTable {
public:
  explicit PageTable(PagePool& pool) : pool_(&pool) {}
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;
  ~PageTable();

  int64_t n_tokens() const { return n_tokens_; }
  std::span<const int32_t> pages() const { return pages_; }  // in logical order

  // The slot of a token in the pool: page * page_tokens + offset. Precondition: in 0..n_tokens-1.
  int64_t slot(int64_t position) const;

  // Makes room for n_new tokens at the end, all or none. Returns the copy that is due when the new
  // tokens begin inside a page that another table holds too. Fails with context_overflow when the
  // pool could not hold the sequence even if it were empty, else with out_of_memory when too few
  // pages are free.
  Result<std::optional<PageCopy>> extend(int64_t n_new);

  // Keeps the first n_tokens. Precondition: 0 <= n_tokens <= n_tokens().
  void truncate(int64_t n_tokens);

  // A second table over the same pages, for the first n_tokens.
  PageTable share(int64_t n_tokens) const;

private:
  int64_t pages_for(int64_t n_tokens) const;

  PagePool* pool_;
  std::vector<int32_t> pages_;
  int64_t n_tokens_ = 0;
};

}  // namespace kapitsa::kv
