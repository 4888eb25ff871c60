// Numbers and tables for people.
#include "cli/show.h"

#include <gtest/gtest.h>

namespace kapitsa::cli {
namespace {

TEST(Show, bytes_and_counts_have_three_digits) {
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_bytes(1023), "1023 B");
  EXPECT_EQ(show_bytes(1024), "1.00 KiB");
  EXPECT_EQ(show_bytes(98362432), "93.8 MiB");
  EXPECT_EQ(show_bytes(int64_t{24} << 30), "24.0 GiB");
  EXPECT_EQ(show_count(999), "999");
  EXPECT_EQ(show_count(134515008), "135 M");
  EXPECT_EQ(show_count(27000000000), "27.0 B");
  EXPECT_EQ(show_rate(10.24e9), "10.2 GB/s");
}

TEST(Show, contexts_are_in_units_of_1024_where_they_are_whole) {
  EXPECT_EQ(show_context(32768), "32K");
  EXPECT_EQ(show_context(1000), "1000");
  EXPECT_EQ(show_context(0), "0");
}

TEST(Show, a_long_text_is_cut_between_characters) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abc...");
  EXPECT_EQ(shorten("ab\xC3\xA9"
                    "defg",
                    6),
            "ab...");
}

TEST(Show, spread_is_median_and_extremes) {
  const Spread odd = spread_of({3.0, 1.0, 2.0});
  EXPECT_EQ(odd.median, 2.0);
  EXPECT_EQ(odd.low, 1.0);
  EXPECT_EQ(odd.high, 3.0);
  EXPECT_EQ(spread_of({4.0, 1.0}).median, 2.5);
  EXPECT_EQ(spread_of({}).median, 0.0);
}

TEST(Show, table_columns_are_as_wide_as_their_widest_cell) {
  Table table({"name", "n"});
  table.add({"a", "1"});
  table.add({"long name", "1234"});
  EXPECT_EQ(table.text(), "name          n\n"
                          "a             1\n"
                          "long name  1234\n");
}

TEST(Table, escapes_control_characters_of_a_file) {
  Table table({"name"});
  table.add({"\x1b[31mred\n"});
  EXPECT_EQ(table.text(), "name\n\\x1b[31mred\\x0a\n");
}

}  // namespace
}  // namespace kapitsa::cli
