// One Knuth-Morris-Pratt automaton per stop string; the longest state says how much must wait.
#include "text/stop_matcher.h"

#include <algorithm>

namespace kapitsa::text {

StopMatcher::StopMatcher(std::span<const std::string> stops) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) continue;
    Stop stop{stops[i], static_cast<int>(i), std::vector<size_t>(stops[i].size() + 1, 0), 0};
    for (size_t end = 1, k = 0; end < stop.text.size(); ++end) {
      while (k > 0 && stop.text[end] != stop.text[k])
        k = stop.failure[k];
      if (stop.text[end] == stop.text[k]) ++k;
      stop.failure[end + 1] = k;
    }
    stops_.push_back(std::move(stop));
  }
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  if (stopped()) return true;
  held_ += text;
  const size_t n_before = held_.size() - text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    const Stop* complete = nullptr;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && stop.text[stop.matched] != text[i])
        stop.matched = stop.failure[stop.matched];
      if (stop.text[stop.matched] == text[i]) ++stop.matched;
      if (stop.matched == stop.text.size() &&
          (!complete || stop.text.size() > complete->text.size()))
        complete = &stop;
    }
    if (complete) {
      out.append(held_, 0, n_before + i + 1 - complete->text.size());
      held_.clear();
      stopped_ = complete->index;
      return true;
    }
  }
  size_t keep = 0;
  for (const Stop& stop : stops_)
    keep = std::max(keep, stop.matched);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopMatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
  for (Stop& stop : stops_)
    stop.matched = 0;
}

}  // namespace kapitsa::text
