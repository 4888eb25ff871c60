#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace kapitsa {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

class Log : public testing::Test {
protected:
  void capture(LogLevel lowest, bool timestamps = false) {
    set_log_sink({.write =
                      [](void* context, LogLevel, std::string_view line) {
                        static_cast<Log*>(context)->lines_.emplace_back(line);
                      },
                  .context = this,
                  .lowest = lowest,
                  .timestamps = timestamps});
  }
  void TearDown() override { set_log_sink(stderr_log_sink()); }

  std::vector<std::string> lines_;
};

TEST_F(Log, lines_below_the_lowest_level_are_dropped) {
  capture(LogLevel::warning);
  log_debug("a");
  log_info("b");
  log_warning("c {}", 1);
  log_error("d {:02}", 2);
  EXPECT_THAT(lines_, ElementsAre("warning: c 1", "error: d 02"));
}

TEST_F(Log, off_is_silent) {
  capture(LogLevel::off);
  log_error("a");
  log_at(LogLevel::off, "b");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, no_sink_is_silent) {
  set_log_sink({});
  EXPECT_FALSE(log_enabled(LogLevel::error));
  log_error("a");
}

TEST_F(Log, a_message_is_one_line) {
  capture(LogLevel::info);
  log_info("{}", "two\nlines\x1b[31m");
  EXPECT_THAT(lines_, ElementsAre("info: two lines [31m"));
}

TEST_F(Log, timestamps_are_utc_with_milliseconds) {
  capture(LogLevel::info, true);
  log_info("x");
  EXPECT_THAT(lines_, ElementsAre(MatchesRegex(
                          "[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+Z info: x")));
}

TEST_F(Log, replacing_the_sink_returns_the_old_one) {
  capture(LogLevel::debug);
  const LogSink old = set_log_sink(stderr_log_sink());
  EXPECT_EQ(old.context, this);
  EXPECT_EQ(old.lowest, LogLevel::debug);
}

TEST_F(Log, lines_of_many_threads_stay_whole) {
  capture(LogLevel::info);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int k = 0; k < 100; ++k)
        log_info("{}", std::string(50, 'x'));
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(lines_, std::vector<std::string>(400, "info: " + std::string(50, 'x')));
}

}  // namespace
}  // namespace kapitsa
