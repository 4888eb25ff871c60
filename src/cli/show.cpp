#include "cli/show.h"

#include "base/check.h"
#include "base/env.h"
#include "base/system.h"
#include "cli/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kapitsa::cli {
namespace {

// Three digits that mean something: 9.87, 98.7, 987.
std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

template <size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units) {
  size_t unit = 0;
  while (value >= step * 0.9995 && unit + 1 < N) {
    value /= step;
    ++unit;
  }
  const std::string number = unit == 0 ? fmt::format("{:.0f}", value) : three_digits(value);
  return *units[unit] == '\0' ? number : number + " " + units[unit];
}

}  // namespace

std::string show_bytes(int64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024.0,
                std::array{"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string show_count(int64_t count) {
  return scaled(static_cast<double>(count), 1000.0, std::array{"", "K", "M", "B", "T"});
}

std::string show_context(int64_t tokens) {
  return tokens > 0 && tokens % 1024 == 0 ? fmt::format("{}K", tokens / 1024)
                                          : std::to_string(tokens);
}

std::string show_rate(double bytes_per_second) {
  return three_digits(bytes_per_second / 1e9) + " GB/s";
}

std::string shorten(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  size_t end = width > 3 ? width - 3 : 0;
  // Not inside a UTF-8 character.
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
  return {median, values.front(), values.back()};
}

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells)
    cell = one_line(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    KAPITSA_CHECK(row.size() == widths.size(), "a table row with another number of cells");
    for (size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t c = 1; c < row.size(); ++c)
      line += fmt::format("  {:>{}}", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

Style::Style(int fd)
    : on_(is_terminal(fd) && !environment("NO_COLOR") && environment("TERM") != "dumb") {}

std::string Style::faint(const std::string& text) const {
  return on_ ? fmt::format("\x1b[2m{}\x1b[0m", text) : text;
}

}  // namespace kapitsa::cli
