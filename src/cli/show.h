// Numbers and tables as people read them in a terminal. Pure functions, except Style, which looks
// at the terminal once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kapitsa::cli {

std::string show_bytes(int64_t bytes);           // "93.8 MiB"
std::string show_count(int64_t count);           // "134.5 M"
std::string show_context(int64_t tokens);        // "8K", "1000"
std::string show_rate(double bytes_per_second);  // "10.2 GB/s"
// At most `width` characters; a longer text ends with "...".
std::string shorten(const std::string& text, size_t width);

struct Spread {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};
Spread spread_of(std::vector<double> values);

// Rows of cells under a heading; each column is as wide as its widest cell. The first column is
// flush left, the others flush right, two spaces between.
class Table {
public:
  explicit Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }
  // As many cells as the heading has. Control characters in them, of a file perhaps, are escaped.
  void add(std::vector<std::string> cells);
  std::string text() const;

private:
  std::vector<std::vector<std::string>> rows_;
};

// Text with escape codes for a terminal; as it is elsewhere and where NO_COLOR is set.
class Style {
public:
  explicit Style(int fd);
  std::string faint(const std::string& text) const;

private:
  bool on_;
};

}  // namespace kapitsa::cli
