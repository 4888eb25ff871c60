#include "cli/progress_bar.h"

#include "base/system.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace kapitsa::cli {
namespace {

constexpr double kWindow = 5.0;             // seconds of the rate
constexpr double kMinWindow = 0.3;          // less is noise
constexpr double kDrawEvery = 0.1;          // seconds
constexpr double kLineEvery = 5.0;          // seconds
constexpr int kDefaultWidth = 80;           // columns
constexpr int kBarWidth = 20;               // columns
constexpr double kLongestShown = 360000.0;  // seconds; a longer time left says nothing

std::string amount(const hub::Progress& progress) {
  if (progress.total_bytes < 0) return hub::shown_bytes(progress.done_bytes);
  return fmt::format("{} of {}", hub::shown_bytes(progress.done_bytes),
                     hub::shown_bytes(progress.total_bytes));
}

double share(const hub::Progress& progress) {
  if (progress.total_bytes <= 0) return 0.0;
  return std::clamp(static_cast<double>(progress.done_bytes) /
                        static_cast<double>(progress.total_bytes),
                    0.0, 1.0);
}

}  // namespace

void RateMeter::add(double seconds, int64_t bytes_so_far) {
  samples_.push_back({seconds, bytes_so_far});
  // The oldest kept one is just outside of the window.
  while (samples_.size() > 2 && seconds - samples_[1].seconds >= kWindow)
    samples_.pop_front();
}

std::optional<double> RateMeter::rate() const {
  if (samples_.empty()) return std::nullopt;
  const double time = samples_.back().seconds - samples_.front().seconds;
  const auto bytes = static_cast<double>(samples_.back().bytes - samples_.front().bytes);
  if (time < kMinWindow || bytes <= 0.0) return std::nullopt;
  return bytes / time;
}

std::string shown_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds + 0.5, 0.0, kLongestShown));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_line(const std::string& label, const hub::Progress& progress,
                          std::optional<double> rate, int width) {
  const char* doing = progress.stage == hub::Stage::checking    ? ", checking"
                      : progress.stage == hub::Stage::unpacking ? ", unpacking"
                                                                : "";
  const bool known = progress.total_bytes > 0;
  std::string bar;
  if (known) {
    const int filled = static_cast<int>(share(progress) * kBarWidth);
    bar = fmt::format(" [{:-<{}}]", std::string(static_cast<size_t>(filled), '#'), kBarWidth);
  }
  const std::string percent =
      known ? fmt::format(" {}%", static_cast<int>(share(progress) * 100.0)) : "";
  std::string speed;
  std::string left;
  if (progress.stage == hub::Stage::transferring && rate) {
    speed = fmt::format(", {}/s", hub::shown_bytes(static_cast<int64_t>(*rate)));
    const auto missing = static_cast<double>(progress.total_bytes - progress.done_bytes);
    if (known && missing / *rate < kLongestShown)
      left = fmt::format(", {} left", shown_duration(missing / *rate));
  }
  const std::string files =
      progress.n_files > 1
          ? fmt::format(", file {} of {}",
                        progress.files_done + 1 > progress.n_files ? progress.n_files
                                                                   : progress.files_done + 1,
                        progress.n_files)
          : "";
  // From the fullest form to the barest.
  for (const std::string& line :
       {label + percent + bar + " " + amount(progress) + speed + left + files + doing,
        label + percent + " " + amount(progress) + speed + left + files + doing,
        label + percent + " " + amount(progress) + speed + left + doing,
        label + percent + speed + left, label + percent}) {
    if (static_cast<int>(line.size()) <= width) return line;
  }
  return (label + percent).substr(0, static_cast<size_t>(std::max(0, width)));
}

ProgressBar::ProgressBar(std::string label, Style style)
    : label_(std::move(label)), style_(style) {}

ProgressBar::Style ProgressBar::style_for_stderr(bool quiet) {
  if (quiet) return Style::none;
  return is_terminal(2) ? Style::drawn : Style::lines;
}

double ProgressBar::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ProgressBar::update(const hub::Progress& progress) {
  if (style_ == Style::none) return;
  const std::lock_guard lock(mutex_);
  const double now = seconds();
  const bool drawn = style_ == Style::drawn;
  if (now - last_shown_ < (drawn ? kDrawEvery : kLineEvery)) return;
  last_shown_ = now;
  meter_.add(now, progress.fresh_bytes);
  // The last column stays free: a full line would wrap in some terminals.
  const int width = drawn ? terminal_width(2).value_or(kDefaultWidth) - 1 : kDefaultWidth;
  const std::string line = progress_line(label_, progress, meter_.rate(), width);
  if (drawn)
    std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  else
    std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
  on_screen_ = drawn;
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  if (on_screen_) std::fputs("\r\x1b[K", stderr);
  on_screen_ = false;
}

void ProgressBar::note(const std::string& text) {
  clear();
  if (style_ != Style::none) std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace kapitsa::cli
