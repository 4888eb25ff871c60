// Shows a download on stderr: in a terminal one line that is drawn again, elsewhere a line every
// few seconds, with --quiet nothing. What a line looks like and how a rate is measured are pure, so
// that tests need neither a terminal nor a clock.
#pragma once

#include "hub/download.h"

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

namespace kapitsa::cli {

// Bytes per second over the last few seconds.
class RateMeter {
public:
  void add(double seconds, int64_t bytes_so_far);
  std::optional<double> rate() const;  // nullopt until there is something to measure

private:
  struct Sample {
    double seconds = 0.0;
    int64_t bytes = 0;
  };
  std::deque<Sample> samples_;
};

// One line without a line break, at most `width` columns of ASCII; what matters least goes first.
std::string progress_line(const std::string& label, const hub::Progress& progress,
                          std::optional<double> rate, int width);

// "0:07", "12:40", "3:05:00".
std::string shown_duration(double seconds);

class ProgressBar {
public:
  enum class Style { none, lines, drawn };
  ProgressBar(std::string label, Style style);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // drawn in a terminal, else lines; none with --quiet.
  static Style style_for_stderr(bool quiet);

  void update(const hub::Progress& progress);  // from any thread
  void note(const std::string& text);          // a line of its own
  void clear();                                // takes the drawn line away

private:
  double seconds() const;

  const std::string label_;
  const Style style_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  RateMeter meter_;
  double last_shown_ = 0.0;  // seconds since start_
  bool on_screen_ = false;
};

}  // namespace kapitsa::cli
