#include "engine/answer.h"

namespace kapitsa::engine {

TextDelta Answer::push(int32_t token, std::vector<TextDelta::Position> logprobs) {
  TextDelta delta;
  delta.tokens.push_back(token);
  delta.logprobs = std::move(logprobs);
  piece_.clear();
  detokenizer_.push(token, piece_);
  matcher_.push(piece_, delta.text);
  return delta;
}

TextDelta Answer::flush() {
  TextDelta delta;
  if (stopped()) return delta;
  piece_.clear();
  detokenizer_.flush(piece_);
  if (!matcher_.push(piece_, delta.text)) matcher_.flush(delta.text);
  return delta;
}

std::string Answer::stop_text() const {
  return stopped() ? stops_[static_cast<size_t>(matcher_.stop_index())] : std::string();
}

}  // namespace kapitsa::engine
