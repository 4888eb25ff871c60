// Splits the text of an answer, as it comes, into reasoning, content and tool calls. What comes
// out, joined, does not depend on how the text is cut. It is lenient: models leave out a wrapper,
// call from within their reasoning, or stop in the middle.
#pragma once

#include "text/output_format.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kapitsa::text {

struct OutputEvent {
  enum class Kind : uint8_t {
    reasoning,
    content,
    call_begin,      // text: the name of the tool
    call_arguments,  // text: a piece of JSON; the pieces of a complete call are one JSON value
    call_end,
  };
  Kind kind = Kind::content;
  std::string text;

  bool operator==(const OutputEvent&) const = default;
};

// The JSON types that a tool's schema gives a parameter: "string", "integer", ...; empty where it
// does not say.
using ParameterType =
    std::function<std::string(const std::string& tool, const std::string& parameter)>;

struct OutputParserOptions {
  bool in_reasoning = false;  // the prompt ends inside of reasoning
  bool tools = false;         // false: calls are text
  ParameterType parameter_type;
};

class OutputParser {
public:
  virtual ~OutputParser() = default;
  // Appends the events of one more piece of text.
  virtual void push(std::string_view text, std::vector<OutputEvent>& events) = 0;
  // The answer has ended: what was held comes out. A call that was cut stays without call_end.
  virtual void flush(std::vector<OutputEvent>& events) = 0;

  virtual bool in_reasoning() const = 0;
};

std::unique_ptr<OutputParser> make_output_parser(const OutputFormat& format,
                                                 OutputParserOptions options);

// Whether a prompt (as text) ends inside of reasoning.
bool ends_in_reasoning(const OutputFormat& format, std::string_view prompt);

}  // namespace kapitsa::text
