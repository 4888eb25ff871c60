// Finds stop strings in streamed text and holds back only what may still become one. One object
// per stream. What comes out does not depend on how the text is cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::text {

class StopMatcher {
public:
  // Empty strings are ignored.
  explicit StopMatcher(std::span<const std::string> stops);

  // Appends to `out` the text that is certainly before any stop string. Returns true when a stop
  // string is complete: the one that ends first, and of those that end together the longest. After
  // that, nothing more comes out.
  bool push(std::string_view text, std::string& out);
  // The stream has ended: the held text was not a stop string after all.
  void flush(std::string& out);

  bool stopped() const { return stopped_ >= 0; }
  int stop_index() const { return stopped_; }  // in the list given, -1 while none is complete

private:
  struct Stop {
    std::string text;
    int index;
    // failure[k]: length of the longest proper prefix of `text` that ends text[0, k).
    // Knuth, Morris, Pratt 1977.
    std::vector<size_t> failure;
    size_t matched = 0;  // longest prefix of `text` that ends the stream so far
  };

  std::vector<Stop> stops_;
  std::string held_;
  int stopped_ = -1;
};

}  // namespace kapitsa::text
