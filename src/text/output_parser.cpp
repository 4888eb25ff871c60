// Text up to the next marker goes out, except what may be the beginning of one; what a marker means
// is decided here, what is inside of a call by text/tool_calls.h.
#include "text/output_parser.h"

#include "base/json.h"
#include "text/tool_calls.h"

#include <boost/json/value.hpp>

#include <algorithm>
#include <utility>

namespace kapitsa::text {
namespace {

using Events = std::vector<OutputEvent>;
using Kind = OutputEvent::Kind;

constexpr std::string_view kSpace = " \t\r\n";

struct Marker {
  enum class Means : uint8_t { reasoning_begin, reasoning_end, call, nothing };
  std::string text;
  Means means;
};

// The text of an answer is not looked at.
class PlainParser final : public OutputParser {
public:
  void push(std::string_view text, Events& events) override {
    add_event(events, Kind::content, text);
  }
  void flush(Events&) override {}
  bool in_reasoning() const override { return false; }
};

std::vector<Marker> call_markers(ToolStyle style) {
  using Means = Marker::Means;
  switch (style) {
  case ToolStyle::hermes_json:
  case ToolStyle::qwen_xml:
    return {{"<tool_call>", Means::call},
            {"<function=", Means::call},
            {"</tool_call>", Means::nothing},
            {"</function>", Means::nothing}};
  case ToolStyle::glm_xml: return {{"<tool_call>", Means::call}, {"</tool_call>", Means::nothing}};
  case ToolStyle::llama_json: return {{"<|python_tag|>", Means::call}};
  case ToolStyle::mistral: return {{"[TOOL_CALLS]", Means::call}};
  case ToolStyle::nemotron_json:
    return {{"<TOOLCALL>", Means::call}, {"</TOOLCALL>", Means::nothing}};
  case ToolStyle::gemma: return {{"<|tool_call>", Means::call}, {"<tool_call|>", Means::nothing}};
  default: return {};
  }
}

class TaggedParser final : public OutputParser {
public:
  TaggedParser(const OutputFormat& format, OutputParserOptions options)
      : format_(format), options_(std::move(options)), reasoning_(options_.in_reasoning),
        skip_space_(reasoning_) {
    if (!format.reasoning_end.empty()) {
      markers_.push_back({format.reasoning_begin, Marker::Means::reasoning_begin});
      markers_.push_back({format.reasoning_end, Marker::Means::reasoning_end});
    }
    if (options_.tools)
      for (Marker& marker : call_markers(format.tools))
        markers_.push_back(std::move(marker));
  }

  bool in_reasoning() const override { return reasoning_ && reader_ == nullptr; }

  void push(std::string_view text, Events& events) override {
    size_t pos = 0;
    while (pos < text.size()) {
      if (reader_ != nullptr) {
        put_in_call(text[pos++], events);
        continue;
      }
      held_ += text[pos++];
      look(events);
    }
  }

  void flush(Events& events) override {
    if (reader_ != nullptr) {
      Events last;
      reader_->flush(last);
      for (OutputEvent& event : last)
        events.push_back(std::move(event));
      if (!said_) say(raw_, events);
      reader_ = nullptr;
      space_.clear();
      return;
    }
    say(std::exchange(held_, ""), events);
    if (!reasoning_ && !skip_space_) add_event(events, Kind::content, std::exchange(space_, ""));
  }

private:
  // After one more character in held_, which before it was empty or the beginning of a marker.
  void look(Events& events) {
    for (const Marker& marker : markers_)
      if (held_ == marker.text) return found(marker, events);
    if (begins_bare_call()) return found({held_, Marker::Means::call}, events);
    while (!held_.empty() && !begins_marker()) {
      // The first character is plain text; the rest may still be a beginning.
      say(held_.substr(0, 1), events);
      held_.erase(0, 1);
    }
  }

  bool begins_marker() const {
    return std::any_of(markers_.begin(), markers_.end(), [&](const Marker& marker) {
      return std::string_view(marker.text).starts_with(held_);
    });
  }

  // Llama writes a call as bare JSON, and nothing before it.
  bool begins_bare_call() const {
    return options_.tools && format_.tools == ToolStyle::llama_json && held_ == "{" &&
           !said_content_ && !reasoning_;
  }

  void found(const Marker& marker, Events& events) {
    held_.clear();
    switch (marker.means) {
    case Marker::Means::reasoning_begin:
      // In the middle of an answer it is text that talks about the tag.
      if (said_content_) return say(marker.text, events);
      reasoning_ = true;
      break;
    case Marker::Means::reasoning_end:
      if (!reasoning_ && said_content_) return say(marker.text, events);
      reasoning_ = false;
      break;
    case Marker::Means::nothing: break;
    case Marker::Means::call:
      reader_ = make_call_reader(format_.tools, marker.text, options_.parameter_type);
      raw_ = marker.text;
      said_ = false;
      return;  // the space before it is dropped when it is a call
    }
    space_.clear();
    skip_space_ = true;
  }

  void put_in_call(char c, Events& events) {
    Events from_call;
    raw_ += c;
    const auto state = reader_->put(c, from_call);
    if (!from_call.empty() && !said_) {
      said_ = true;
      space_.clear();
      reasoning_ = false;  // a call within reasoning ends it
    }
    for (OutputEvent& event : from_call) {
      if (event.kind == Kind::call_arguments) {
        add_event(events, event.kind, event.text);
      } else {
        events.push_back(std::move(event));
      }
    }
    if (state == CallReader::State::more) return;
    reader_ = nullptr;
    if (state == CallReader::State::not_calls) {
      say_as_text(events);
      return;
    }
    skip_space_ = true;
    if (state == CallReader::State::beyond) {
      held_ += c;
      look(events);
    }
  }

  // What looked like a call: its first characters are text, the rest may hold markers.
  void say_as_text(Events& events) {
    const std::string raw = std::exchange(raw_, "");
    say(raw.substr(0, raw.size() - 1), events);
    held_ = raw.back();
    look(events);
  }

  // Space at the end waits for what follows: before a marker it is dropped.
  void say(std::string_view text, Events& events) {
    for (const char c : text) {
      if (kSpace.find(c) != kSpace.npos) {
        if (!skip_space_) space_ += c;
        continue;
      }
      skip_space_ = false;
      if (!reasoning_) said_content_ = true;
      const Kind kind = reasoning_ ? Kind::reasoning : Kind::content;
      add_event(events, kind, std::exchange(space_, ""));
      add_event(events, kind, {&c, 1});
    }
  }

  const OutputFormat format_;
  const OutputParserOptions options_;
  std::vector<Marker> markers_;
  std::string held_;   // the beginning of a marker
  std::string space_;  // not yet said
  bool reasoning_;
  bool skip_space_;  // at the beginning of a part
  bool said_content_ = false;
  std::unique_ptr<CallReader> reader_;  // of the call that is open
  std::string raw_;                     // its text, as long as it may turn out to be none
  bool said_ = false;                   // its name went out
};

// <|channel|>CHANNEL<|message|>TEXT<|end|><|start|>assistant<|channel|>.. (OpenAI's harmony
// format).
class HarmonyParser final : public OutputParser {
public:
  explicit HarmonyParser(OutputParserOptions options) : options_(std::move(options)) {}

  bool in_reasoning() const override { return channel_ == Channel::analysis; }

  void push(std::string_view text, Events& events) override {
    for (const char c : text) {
      held_ += c;
      look(events);
    }
  }

  void flush(Events& events) override {
    say(std::exchange(held_, ""), events);
    end_message(events);
  }

private:
  enum class Channel : uint8_t { header, analysis, content, call };

  void look(Events& events) {
    static constexpr std::string_view kMarkers[] = {"<|channel|>",  "<|message|>", "<|end|>",
                                                    "<|start|>",    "<|call|>",    "<|return|>",
                                                    "<|constrain|>"};
    for (const std::string_view marker : kMarkers)
      if (held_ == marker) return found(marker, events);
    while (!held_.empty() &&
           std::none_of(std::begin(kMarkers), std::end(kMarkers),
                        [&](std::string_view m) { return m.starts_with(held_); })) {
      say(held_.substr(0, 1), events);
      held_.erase(0, 1);
    }
  }

  void found(std::string_view marker, Events& events) {
    held_.clear();
    if (marker == "<|message|>") return begin_message(events);
    if (channel_ != Channel::header) end_message(events);
    channel_ = Channel::header;
    if (marker == "<|start|>") header_.clear();
    header_ += ' ';
    if (marker == "<|channel|>") header_ += "channel=";
  }

  void begin_message(Events& events) {
    const std::string header = std::exchange(header_, "");
    const size_t to = header.find("to=functions.");
    if (to != header.npos && options_.tools) {
      const size_t start = to + 13;
      const std::string name = header.substr(start, header.find_first_of(" <", start) - start);
      channel_ = Channel::call;
      events.push_back({Kind::call_begin, name});
      return;
    }
    channel_ =
        header.find("channel=analysis") != header.npos ? Channel::analysis : Channel::content;
  }

  void say(std::string_view text, Events& events) {
    if (text.empty()) return;
    switch (channel_) {
    case Channel::header:
      // A model that leaves out the header of a plain answer.
      if (!any_header_ && header_.empty() && text.front() != ' ') {
        channel_ = Channel::content;
        return add_event(events, Kind::content, text);
      }
      header_ += text;
      return;
    case Channel::analysis: return add_event(events, Kind::reasoning, text);
    case Channel::content: return add_event(events, Kind::content, text);
    case Channel::call: arguments_ += text; return add_event(events, Kind::call_arguments, text);
    }
  }

  void end_message(Events& events) {
    any_header_ = true;
    if (channel_ != Channel::call) return;
    // The end token is not seen; whole arguments are a whole call.
    const std::string arguments = std::exchange(arguments_, "");
    if (arguments.find_first_not_of(kSpace) == arguments.npos)
      add_event(events, Kind::call_arguments, "{}");
    else if (!parse_json(arguments, "arguments").ok())
      return;
    events.push_back({Kind::call_end, ""});
    channel_ = Channel::header;
  }

  const OutputParserOptions options_;
  Channel channel_ = Channel::header;
  std::string held_;
  std::string header_;
  std::string arguments_;
  bool any_header_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> make_output_parser(const OutputFormat& format,
                                                 OutputParserOptions options) {
  if (format.tools == ToolStyle::harmony)
    return std::make_unique<HarmonyParser>(std::move(options));
  if (format.reasoning_end.empty() && !(options.tools && format.tools != ToolStyle::none))
    return std::make_unique<PlainParser>();
  return std::make_unique<TaggedParser>(format, std::move(options));
}

bool ends_in_reasoning(const OutputFormat& format, std::string_view prompt) {
  if (format.reasoning_begin.empty() || format.tools == ToolStyle::harmony) return false;
  const size_t end = prompt.find_last_not_of(kSpace);
  return end != prompt.npos && prompt.substr(0, end + 1).ends_with(format.reasoning_begin);
}

}  // namespace kapitsa::text
