// Reads the inside of a tool call, one character at a time, in the writing of each family. What is
// around calls is the business of text/output_parser.cpp.
#pragma once

#include "text/output_parser.h"

#include <memory>
#include <string>
#include <vector>

namespace kapitsa::text {

class CallReader {
public:
  enum class State : uint8_t {
    more,
    done,       // the character was the last one
    beyond,     // done before the character, which is not part of it
    not_calls,  // neither this nor what came before is a call; nothing was said yet
  };

  virtual ~CallReader() = default;
  virtual State put(char c, std::vector<OutputEvent>& events) = 0;
  // The answer has ended in the middle: a call that is complete but for its wrapper ends.
  virtual void flush(std::vector<OutputEvent>& events) { (void)events; }
};

// After the marker that begins a call.
std::unique_ptr<CallReader> make_call_reader(ToolStyle style, std::string_view marker,
                                             ParameterType parameter_type);

// Appends to the last event where that is of the same kind.
void add_event(std::vector<OutputEvent>& events, OutputEvent::Kind kind, std::string_view text);

// The inside of a JSON string, bytes beyond ASCII as they are.
std::string json_escaped(std::string_view text);

// Finds the end of one JSON value.
class JsonValueEnd {
public:
  enum class At : uint8_t { inside, last, beyond };
  At put(char c);
  bool started() const { return started_; }

private:
  int depth_ = 0;
  bool started_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool bare_ = false;  // a number or a word
};

}  // namespace kapitsa::text
