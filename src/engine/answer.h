// Turns the tokens of one answer into TextDelta events: detokenises, holds back unfinished
// characters and what may become a stop text, and carries the log-probabilities along.
#pragma once

#include "kapitsa/engine.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

#include <optional>
#include <string>
#include <vector>

namespace kapitsa::engine {

class Answer {
public:
  Answer(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops, bool show_control)
      : detokenizer_(tokenizer, {.show_control = show_control}), matcher_(stops), stops_(stops) {}

  // The event for one more token. After it, stop_text() says whether a stop text is complete.
  TextDelta push(int32_t token, std::vector<TextDelta::Position> logprobs);

  // What was held back, when the answer ends without a stop text.
  TextDelta flush();

  bool stopped() const { return matcher_.stopped(); }
  std::string stop_text() const;

private:
  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  std::vector<std::string> stops_;
  std::string piece_;  // reused between tokens
};

}  // namespace kapitsa::engine
