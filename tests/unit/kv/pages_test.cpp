#include "kv/pages.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace kapitsa::kv {
namespace {

TEST(Pages, slots_are_distinct_and_inside_the_pool) {
  PagePool pool(4, 8);
  PageTable a(pool), b(pool);
  ASSERT_TRUE(a.extend(11));
  ASSERT_TRUE(b.extend(9));
  ASSERT_TRUE(a.extend(5));
  std::set<int64_t> slots;
  for (int64_t i = 0; i < a.n_tokens(); ++i)
    slots.insert(a.slot(i));
  for (int64_t i = 0; i < b.n_tokens(); ++i)
    slots.insert(b.slot(i));
  EXPECT_EQ(slots.size(), 25u);
  EXPECT_GE(*slots.begin(), 0);
  EXPECT_LT(*slots.rbegin(), 32);
  EXPECT_EQ(a.slot(7), a.slot(0) + 7);
  EXPECT_EQ(pool.n_free(), 0);
}

TEST(Pages, the_default_page_is_the_prefill_grid) {
  PagePool pool(2);
  EXPECT_EQ(pool.page_tokens(), 64);
  EXPECT_EQ(pool.free_tokens(), 128);
}

TEST(Pages, a_full_pool_says_what_is_free_and_changes_nothing) {
  PagePool pool(4, 8);
  PageTable a(pool), b(pool);
  ASSERT_TRUE(a.extend(16));
  ASSERT_TRUE(b.extend(4));
  const auto result = b.extend(13);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(result.error().message, "the KV cache is full: 13 more tokens need 2 pages of 8, found "
                                    "1 free pages (8 tokens)");
  EXPECT_EQ(b.n_tokens(), 4);
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_TRUE(b.extend(12));
}

TEST(Pages, a_sequence_larger_than_the_pool_is_a_context_overflow) {
  PagePool pool(4, 8);
  PageTable a(pool);
  ASSERT_TRUE(a.extend(30));
  EXPECT_EQ(a.extend(3).error().code, ErrorCode::context_overflow);
  EXPECT_EQ(a.extend(INT64_MAX).error().code, ErrorCode::context_overflow);
  EXPECT_TRUE(a.extend(2));
}

TEST(Pages, truncation_frees_whole_pages_only) {
  PagePool pool(4, 8);
  PageTable a(pool);
  ASSERT_TRUE(a.extend(25));
  a.truncate(9);
  EXPECT_EQ(pool.n_free(), 2);
  a.truncate(8);
  EXPECT_EQ(pool.n_free(), 3);
  a.truncate(0);
  EXPECT_EQ(pool.n_free(), 4);
}

TEST(Pages, a_write_behind_a_shared_part_gets_its_own_page) {
  PagePool pool(4, 8);
  PageTable a(pool);
  ASSERT_TRUE(a.extend(12));
  PageTable b = a.share(11);
  EXPECT_EQ(b.slot(10), a.slot(10));
  EXPECT_EQ(pool.n_free(), 2);
  const auto copy = b.extend(1);
  ASSERT_TRUE(copy);
  ASSERT_TRUE(copy->has_value());
  EXPECT_EQ((*copy)->from, a.pages()[1]);
  EXPECT_EQ((*copy)->to, b.pages()[1]);
  EXPECT_EQ((*copy)->n_tokens, 3);
  EXPECT_NE(b.slot(11), a.slot(11));
  EXPECT_EQ(b.slot(3), a.slot(3));
  const auto unshared = a.extend(1);
  ASSERT_TRUE(unshared);
  EXPECT_FALSE(unshared->has_value());
}

TEST(Pages, no_copy_where_the_shared_part_ends_a_page) {
  PagePool pool(4, 8);
  PageTable a(pool);
  ASSERT_TRUE(a.extend(16));
  PageTable b = a.share(16);
  const auto copy = b.extend(1);
  ASSERT_TRUE(copy);
  EXPECT_FALSE(copy->has_value());
  EXPECT_EQ(pool.n_free(), 1);
}

TEST(Pages, moved_tables_own_their_pages_once) {
  PagePool pool(4, 8);
  {
    PageTable a(pool);
    ASSERT_TRUE(a.extend(8));
    PageTable b(std::move(a));
    PageTable c(pool);
    ASSERT_TRUE(c.extend(8));
    c = std::move(b);
    EXPECT_EQ(c.n_tokens(), 8);
    EXPECT_EQ(pool.n_free(), 3);
  }
  EXPECT_EQ(pool.n_free(), 4);
}

// A model of the pool's contents: every slot remembers which token was written last. A table must
// always read back its own tokens, whatever the others do.
class RandomOperations : public testing::TestWithParam<unsigned> {
protected:
  static constexpr int32_t kPages = 13;

  struct Sequence {
    PageTable table;
    std::vector<int> tokens;
  };

  void write_back(Sequence& s, const std::optional<PageCopy>& copy, int64_t n_new) {
    const int64_t size = pool_.page_tokens();
    if (copy) {
      for (int64_t i = 0; i < copy->n_tokens; ++i)
        memory_[copy->to * size + i] = memory_.at(copy->from * size + i);
    }
    for (int64_t i = 0; i < n_new; ++i) {
      s.tokens.push_back(next_token_);
      memory_[s.table.slot(static_cast<int64_t>(s.tokens.size()) - 1)] = next_token_++;
    }
  }

  void check() const {
    std::map<int32_t, int32_t> references;
    for (const Sequence& s : sequences_) {
      ASSERT_EQ(s.table.n_tokens(), static_cast<int64_t>(s.tokens.size()));
      for (int64_t i = 0; i < s.table.n_tokens(); ++i)
        ASSERT_EQ(memory_.at(s.table.slot(i)), s.tokens[static_cast<size_t>(i)]);
      for (const int32_t page : s.table.pages())
        ++references[page];
    }
    ASSERT_EQ(pool_.n_free() + static_cast<int32_t>(references.size()), kPages);
    for (const auto& [page, count] : references)
      ASSERT_EQ(pool_.references(page), count);
  }

  PagePool pool_{kPages, 4};
  std::map<int64_t, int> memory_;
  std::vector<Sequence> sequences_;
  int next_token_ = 0;
};

TEST_P(RandomOperations, never_leak_and_never_mix_sequences) {
  std::mt19937 random(GetParam());
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  int n_refused = 0;
  for (int step = 0; step < 3000; ++step) {
    const int64_t operation = below(10);
    if (sequences_.empty() || operation == 0) {
      sequences_.push_back({PageTable(pool_), {}});
    } else {
      Sequence& s = sequences_[static_cast<size_t>(below(std::ssize(sequences_)))];
      const auto length = static_cast<int64_t>(s.tokens.size());
      if (operation <= 5) {
        const int64_t n_new = below(11);
        if (const auto copy = s.table.extend(n_new))
          write_back(s, *copy, n_new);
        else
          ++n_refused;
      } else if (operation <= 7) {
        const int64_t keep = below(length + 1);
        s.table.truncate(keep);
        s.tokens.resize(static_cast<size_t>(keep));
      } else if (operation == 8) {
        const int64_t shared = below(length + 1);
        std::vector<int> tokens(s.tokens.begin(), s.tokens.begin() + shared);
        PageTable table = s.table.share(shared);
        sequences_.push_back({std::move(table), std::move(tokens)});
      } else {
        std::swap(s, sequences_.back());
        sequences_.pop_back();
      }
    }
    check();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(n_refused, 0);
  sequences_.clear();
  EXPECT_EQ(pool_.n_free(), kPages);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomOperations, testing::Range(1u, 7u));

}  // namespace
}  // namespace kapitsa::kv
