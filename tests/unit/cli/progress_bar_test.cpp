// What a download looks like, and what it costs to find the package index.
#include "cli/models.h"
#include "cli/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::cli {
namespace {

hub::Progress halfway() {
  return {.done_bytes = 50'000'000, .total_bytes = 100'000'000, .n_files = 1};
}

TEST(ProgressLine, shows_share_rate_and_time_left) {
  EXPECT_EQ(progress_line("smollm2", halfway(), 10e6, 79),
            "smollm2 50% [##########----------] 50.0 MB of 100.0 MB, 10.0 MB/s, 0:05 left");
}

TEST(ProgressLine, never_is_wider_than_the_terminal) {
  hub::Progress progress = halfway();
  progress.n_files = 30;
  progress.files_done = 3;
  for (int width = 0; width <= 200; ++width) {
    const std::string line = progress_line("hf:owner/some-long-repository", progress, 10e6, width);
    EXPECT_LE(static_cast<int>(line.size()), width);
    if (width >= 40) {
      EXPECT_THAT(line, testing::HasSubstr("50%"));
    }
  }
}

TEST(ProgressLine, knows_no_share_without_a_size) {
  EXPECT_EQ(progress_line("m", {.done_bytes = 5000, .total_bytes = -1}, std::nullopt, 79),
            "m 5.0 kB");
}

TEST(ProgressLine, counts_files_and_names_other_work) {
  hub::Progress progress = halfway();
  progress.n_files = 2;
  progress.files_done = 2;
  progress.stage = hub::Stage::checking;
  EXPECT_EQ(progress_line("m", progress, 10e6, 79),
            "m 50% [##########----------] 50.0 MB of 100.0 MB, file 2 of 2, checking");
}

TEST(RateMeter, measures_the_last_seconds) {
  RateMeter meter;
  EXPECT_FALSE(meter.rate());
  meter.add(0.0, 0);
  EXPECT_FALSE(meter.rate());
  meter.add(1.0, 1000);
  EXPECT_DOUBLE_EQ(*meter.rate(), 1000.0);
  for (int i = 2; i <= 20; ++i)
    meter.add(i, 1000 + (i - 1) * 5000);
  EXPECT_DOUBLE_EQ(*meter.rate(), 5000.0);
}

TEST(Duration, is_short) {
  EXPECT_EQ(shown_duration(0.2), "0:00");
  EXPECT_EQ(shown_duration(59.6), "1:00");
  EXPECT_EQ(shown_duration(3600.0 * 3 + 65), "3:01:05");
  EXPECT_EQ(shown_duration(1e300), "100:00:00");
}

TEST(PipHelp, tells_the_index) {
  EXPECT_EQ(index_in_pip_help("Package Index Options:\n"
                              "  -i, --index-url <url>   Base URL of the index (default\n"
                              "                          https://index.example/simple). This\n"
                              "  --extra-index-url <url> Extra, see http://other.example\n"),
            "https://index.example/simple");
  EXPECT_EQ(index_in_pip_help("  -i, --index-url <url>  Base URL.\n"
                              "  --extra <url>  (default https://other.example)\n"),
            "");
  EXPECT_EQ(index_in_pip_help(""), "");
}

}  // namespace
}  // namespace kapitsa::cli
