// Any text as the answer of each family: read whole and in two pieces it must give the same events,
// and an ended call has begun.
#include "text/output_parser.h"

#include <cstdlib>
#include <string_view>

namespace {

using kapitsa::text::OutputEvent;
using Kind = OutputEvent::Kind;

std::vector<OutputEvent> parsed(const kapitsa::text::OutputFormat& format, bool reasoning,
                                std::string_view first, std::string_view second) {
  const auto parser = kapitsa::text::make_output_parser(
      format, {.in_reasoning = reasoning,
               .tools = true,
               .parameter_type = [](const std::string&, const std::string& parameter) {
                 return std::string(parameter == "n" ? "integer" : "string");
               }});
  std::vector<OutputEvent> events;
  parser->push(first, events);
  parser->push(second, events);
  parser->flush(events);
  std::vector<OutputEvent> merged;
  bool open = false;
  for (const OutputEvent& event : events) {
    if (event.kind == Kind::call_begin) open = true;
    if ((event.kind == Kind::call_arguments || event.kind == Kind::call_end) && !open) std::abort();
    if (event.kind == Kind::call_end) open = false;
    const bool joins = event.kind != Kind::call_begin && event.kind != Kind::call_end;
    if (joins && !merged.empty() && merged.back().kind == event.kind) {
      merged.back().text += event.text;
    } else {
      merged.push_back(event);
    }
  }
  return merged;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  static const kapitsa::text::OutputFormat formats[] = {
      kapitsa::text::output_format("<think><tool_call>"),
      kapitsa::text::output_format("<think><tool_call><function="),
      kapitsa::text::output_format("<|python_tag|>"),
      kapitsa::text::output_format("[TOOL_CALLS][THINK]"),
      kapitsa::text::output_format("<think><TOOLCALL>"),
      kapitsa::text::output_format("<|tool_call><|channel>"),
      kapitsa::text::output_format("<|channel|><|message|>"),
      kapitsa::text::output_format("<think><tool_call><arg_key>")};
  const auto& format = formats[data[0] % std::size(formats)];
  const bool reasoning = (data[1] & 1) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t cut = data[2] * text.size() / 255;
  if (parsed(format, reasoning, text, "") !=
      parsed(format, reasoning, text.substr(0, cut), text.substr(cut)))
    std::abort();
  return 0;
}
