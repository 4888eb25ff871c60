#include "kv/pages.h"

#include "base/check.h"

#include <fmt/format.h>

#include <utility>

namespace kapitsa::kv {

PagePool::PagePool(int32_t n_pages, int32_t page_tokens) : page_tokens_(page_tokens) {
  KAPITSA_CHECK(n_pages >= 0 && page_tokens > 0, "a page pool needs a page size");
  references_.resize(static_cast<size_t>(n_pages));
  free_.reserve(references_.size());
  for (int32_t page = n_pages - 1; page >= 0; --page)
    free_.push_back(page);
}

int32_t PagePool::take() {
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::add_reference(int32_t page) {
  ++references_[static_cast<size_t>(page)];
}

void PagePool::release(int32_t page) {
  int32_t& references = references_[static_cast<size_t>(page)];
  KAPITSA_CHECK(references > 0, "a page is released twice");
  if (--references == 0) free_.push_back(page);
}

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_), pages_(std::exchange(other.pages_, {})),
      n_tokens_(std::exchange(other.n_tokens_, 0)) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this == &other) return *this;
  truncate(0);
  pool_ = other.pool_;
  pages_ = std::exchange(other.pages_, {});
  n_tokens_ = std::exchange(other.n_tokens_, 0);
  return *this;
}

PageTable::~PageTable() {
  truncate(0);
}

int64_t PageTable::pages_for(int64_t n_tokens) const {
  return n_tokens / pool_->page_tokens() + (n_tokens % pool_->page_tokens() != 0 ? 1 : 0);
}

int64_t PageTable::slot(int64_t position) const {
  KAPITSA_DCHECK(position >= 0 && position < n_tokens_, "a position outside of the sequence");
  const int32_t page_tokens = pool_->page_tokens();
  const int32_t page = pages_[static_cast<size_t>(position / page_tokens)];
  return int64_t{page} * page_tokens + position % page_tokens;
}

Result<std::optional<PageCopy>> PageTable::extend(int64_t n_new) {
  KAPITSA_CHECK(n_new >= 0, "a sequence grows by a negative number of tokens");
  const std::optional<PageCopy> no_copy;
  if (n_new == 0) return no_copy;
  const int64_t capacity = int64_t{pool_->n_pages()} * pool_->page_tokens();
  if (n_new > capacity - n_tokens_)
    return Error{ErrorCode::context_overflow,
                 fmt::format("the KV cache holds {} tokens in all; the sequence has {} and needs "
                             "{} more; shorten it or load the model with a larger context",
                             capacity, n_tokens_, n_new)};
  const auto n_used = static_cast<int32_t>(n_tokens_ % pool_->page_tokens());
  const bool copies = n_used != 0 && pool_->references(pages_.back()) > 1;
  const int64_t n_needed =
      pages_for(n_tokens_ + n_new) - static_cast<int64_t>(pages_.size()) + (copies ? 1 : 0);
  if (n_needed > pool_->n_free())
    return Error{ErrorCode::out_of_memory,
                 fmt::format("the KV cache is full: {} more tokens need {} pages of {}, found {} "
                             "free pages ({} tokens)",
                             n_new, n_needed, pool_->page_tokens(), pool_->n_free(),
                             pool_->free_tokens())};
  std::optional<PageCopy> copy;
  if (copies) {
    copy = PageCopy{pages_.back(), pool_->take(), n_used};
    pool_->release(std::exchange(pages_.back(), copy->to));
  }
  n_tokens_ += n_new;
  const auto n_pages = static_cast<size_t>(pages_for(n_tokens_));
  while (pages_.size() < n_pages)
    pages_.push_back(pool_->take());
  return copy;
}

void PageTable::truncate(int64_t n_tokens) {
  KAPITSA_CHECK(n_tokens >= 0 && n_tokens <= n_tokens_, "truncation to more than the sequence");
  const auto n_pages = static_cast<size_t>(pages_for(n_tokens));
  while (pages_.size() > n_pages) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
  n_tokens_ = n_tokens;
}

PageTable PageTable::share(int64_t n_tokens) const {
  KAPITSA_CHECK(n_tokens >= 0 && n_tokens <= n_tokens_, "a shared part longer than the sequence");
  PageTable table(*pool_);
  table.pages_.assign(pages_.begin(), pages_.begin() + pages_for(n_tokens));
  for (const int32_t page : table.pages_)
    pool_->add_reference(page);
  table.n_tokens_ = n_tokens;
  return table;
}

}  // namespace kapitsa::kv
