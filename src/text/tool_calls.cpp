// Every reader is a machine over characters, so that how the text is cut cannot matter.
#include "text/tool_calls.h"

#include "base/json.h"
#include "base/json_write.h"

#include <boost/json/value.hpp>

#include <cctype>
#include <utility>

namespace kapitsa::text {
namespace {

using Events = std::vector<OutputEvent>;
using Kind = OutputEvent::Kind;
using State = CallReader::State;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

// The text of a JSON string with its quotes; what is no string is returned as it is.
std::string unquoted(const std::string& json) {
  const auto value = parse_json(json, "arguments");
  if (value && value->is_string()) return std::string(value->get_string());
  return json;
}

// {"name": N, "arguments": {..}}: arguments go out as they come once the name is known.
class JsonCall {
public:
  State put(char c, Events& events) {
    switch (at_) {
    case At::begin:
      if (is_space(c)) return State::more;
      if (c != '{') return State::not_calls;
      at_ = At::key;
      return State::more;
    case At::key: return put_key(c);
    case At::colon:
      if (is_space(c)) return State::more;
      if (c != ':') return bad();
      at_ = At::value;
      end_ = {};
      value_.clear();
      return State::more;
    case At::value: return put_value(c, events);
    case At::comma:
      if (is_space(c)) return State::more;
      if (c == '}') return finish(events);
      if (c != ',') return bad();
      at_ = At::key;
      return State::more;
    }
    return State::more;
  }

private:
  enum class At : uint8_t { begin, key, colon, value, comma };

  // After the name was said, nothing can be taken back: the call only never ends.
  State bad() { return said_ ? State::beyond : State::not_calls; }

  State put_key(char c) {
    if (key_.empty() && is_space(c)) return State::more;
    if (key_.empty() && c != '"') return bad();
    if (c == '"' && !key_.empty()) {
      key_.erase(0, 1);
      constexpr std::string_view kKeys[] = {"name", "arguments", "parameters", "type",
                                            "id",   "function",  "call_id"};
      bool known = false;
      for (const std::string_view key : kKeys)
        known = known || key == key_;
      if (!known && name_.empty()) return bad();
      at_ = At::colon;
      return State::more;
    }
    key_ += c;
    return State::more;
  }

  State put_value(char c, Events& events) {
    const bool arguments = key_ == "arguments" || key_ == "parameters";
    const JsonValueEnd::At at = end_.put(c);
    if (at == JsonValueEnd::At::beyond) {
      end_value(events);
      return put(c, events);
    }
    if (!end_.started()) return State::more;
    // Arguments as a JSON string in a string can only be read as a whole.
    const bool streamed = arguments && (value_.empty() ? c != '"' : value_.front() != '"');
    value_ += c;
    if (streamed) {
      has_arguments_ = true;
      if (said_) {
        add_event(events, Kind::call_arguments, {&c, 1});
      } else {
        held_ += c;
      }
    }
    if (at == JsonValueEnd::At::last) end_value(events);
    return State::more;
  }

  void end_value(Events& events) {
    at_ = At::comma;
    const std::string key = std::exchange(key_, "");
    if ((key == "name" || key == "function") && value_.starts_with('"') && !said_) {
      name_ = unquoted(value_);
      said_ = true;
      add_event(events, Kind::call_begin, name_);
      if (!held_.empty()) add_event(events, Kind::call_arguments, std::exchange(held_, ""));
    } else if ((key == "arguments" || key == "parameters") && value_.starts_with('"')) {
      has_arguments_ = true;
      const std::string text = unquoted(value_);
      if (said_) {
        add_event(events, Kind::call_arguments, text);
      } else {
        held_ += text;
      }
    }
  }

  State finish(Events& events) {
    if (!said_) return State::not_calls;
    if (!has_arguments_) add_event(events, Kind::call_arguments, "{}");
    add_event(events, Kind::call_end, "");
    return State::done;
  }

  At at_ = At::begin;
  std::string key_;  // with its first quote while it is read
  std::string value_;
  JsonValueEnd end_;
  std::string name_;
  std::string held_;  // arguments before the name
  bool said_ = false;
  bool has_arguments_ = false;
};

class JsonCallReader final : public CallReader {
public:
  // `begun`: the opening brace was the marker.
  explicit JsonCallReader(bool begun) {
    Events none;
    if (begun) call_.put('{', none);
  }
  State put(char c, Events& events) override { return call_.put(c, events); }

private:
  JsonCall call_;
};

// [{..}, {..}], or NAME[ARGS]{..} with an optional [CALL_ID]ID in between.
class MistralReader final : public CallReader {
public:
  State put(char c, Events& events) override {
    if (at_ == At::begin) {
      if (is_space(c)) return State::more;
      if (c == '[') {
        at_ = At::list;
        return State::more;
      }
      at_ = c == '{' ? At::object : At::name;
    }
    switch (at_) {
    case At::name: return put_name(c, events);
    case At::arguments: return put_arguments(c, events);
    case At::list:
      if (is_space(c) || c == ',') return State::more;
      if (c == ']') return State::done;
      if (c != '{') return any_ ? State::beyond : State::not_calls;
      at_ = At::object;
      in_list_ = true;
      [[fallthrough]];
    default: return put_object(c, events);
    }
  }

private:
  enum class At : uint8_t { begin, list, object, name, arguments };

  State put_object(char c, Events& events) {
    const State state = call_.put(c, events);
    if (state == State::not_calls) return any_ ? State::beyond : state;
    if (state != State::done) return state;
    any_ = true;
    call_ = {};
    at_ = At::list;
    return in_list_ ? State::more : State::done;
  }

  State put_name(char c, Events& events) {
    if (c != '{') {
      name_ += c;
      return State::more;
    }
    const size_t end = name_.find_first_of("[ \t\r\n");
    const std::string name = name_.substr(0, end);
    if (name.empty()) return State::not_calls;
    add_event(events, Kind::call_begin, name);
    at_ = At::arguments;
    return put_arguments(c, events);
  }

  State put_arguments(char c, Events& events) {
    const JsonValueEnd::At at = end_.put(c);
    add_event(events, Kind::call_arguments, {&c, 1});
    if (at != JsonValueEnd::At::last) return State::more;
    add_event(events, Kind::call_end, "");
    return State::done;
  }

  At at_ = At::begin;
  bool in_list_ = false;
  bool any_ = false;
  std::string name_;
  JsonCall call_;
  JsonValueEnd end_;
};

// Parameters as elements, each value the bare text between two tags.
struct XmlWords {
  std::string_view name_begin;  // empty: the name stands right after the marker
  std::string_view key_begin, key_end, value_begin, value_end;
  std::string_view call_end;
  bool strip_newlines;  // one at each end of a value
};
constexpr XmlWords kQwenXml{"<function=",   "<parameter=", ">", "",
                            "</parameter>", "</function>", true};
constexpr XmlWords kGlmXml{
    "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>", false};

class XmlReader final : public CallReader {
public:
  XmlReader(const XmlWords& words, std::string_view marker, ParameterType parameter_type)
      : words_(words), parameter_type_(std::move(parameter_type)),
        at_(words.name_begin.empty() || marker == words.name_begin ? At::name : At::before_name) {}

  State put(char c, Events& events) override {
    text_ += c;
    switch (at_) {
    case At::before_name:
      if (trimmed(text_).empty()) return State::more;
      return expect(words_.name_begin, At::name, State::not_calls);
    case At::name: return put_name(events);
    case At::between: return put_between(events);
    case At::key: return put_key(events);
    case At::before_value:
      if (trimmed(text_).empty()) return State::more;
      return expect(words_.value_begin, At::value, State::beyond);
    case At::value: return put_value(events);
    }
    return State::more;
  }

  void flush(Events& events) override {
    // Everything is there but the last tags.
    if (at_ == At::between && std::string_view(words_.call_end).starts_with(trimmed(text_)))
      finish(events);
  }

private:
  enum class At : uint8_t { before_name, name, between, key, before_value, value };

  State go(At at) {
    at_ = at;
    text_.clear();
    return State::more;
  }

  State expect(std::string_view word, At next, State otherwise) {
    const std::string_view text = trimmed(text_);
    if (text == word) return go(next);
    return word.starts_with(text) ? State::more : otherwise;
  }

  State put_name(Events& events) {
    // Qwen: up to ">"; GLM: up to the first tag.
    const bool bare = words_.name_begin.empty();
    if (text_.back() != (bare ? '<' : '>')) return State::more;
    tool_ = trimmed(std::string_view(text_).substr(0, text_.size() - 1));
    if (tool_.empty()) return State::not_calls;
    add_event(events, Kind::call_begin, tool_);
    go(At::between);
    if (bare) text_ = "<";
    return State::more;
  }

  State put_between(Events& events) {
    const std::string_view text = trimmed(text_);
    if (text.empty()) return State::more;
    if (text == words_.key_begin) return go(At::key);
    if (text == words_.call_end) {
      finish(events);
      return State::done;
    }
    if (words_.key_begin.starts_with(text) || words_.call_end.starts_with(text)) return State::more;
    // A model that forgets its closing tag and goes on: the call is what was there.
    if (std::string_view("</tool_call>").starts_with(text)) {
      if (text.size() < 12) return State::more;
      finish(events);
      return State::done;
    }
    return State::beyond;
  }

  State put_key(Events& events) {
    if (!text_.ends_with(words_.key_end)) return State::more;
    const std::string key(
        trimmed(std::string_view(text_).substr(0, text_.size() - words_.key_end.size())));
    const std::string type = parameter_type_ ? parameter_type_(tool_, key) : "";
    as_text_ = type.empty() || type == "string";
    type_ = type;
    add_event(events, Kind::call_arguments,
              (n_parameters_++ == 0 ? "{\"" : ",\"") + json_escaped(key) +
                  (as_text_ ? "\":\"" : "\":"));
    first_ = true;
    return go(words_.value_begin.empty() ? At::value : At::before_value);
  }

  State put_value(Events& events) {
    if (first_ && words_.strip_newlines) {
      first_ = false;
      if (text_ == "\n") {
        text_.clear();
        return State::more;
      }
    }
    first_ = false;
    if (text_.ends_with(words_.value_end)) return end_value(events);
    if (!as_text_) return State::more;
    // All but what may be the end: a newline and the closing tag, or a part of them.
    size_t keep = 0;
    const std::string end = (words_.strip_newlines ? "\n" : "") + std::string(words_.value_end);
    for (size_t n = std::min(text_.size(), end.size()); n > 0 && keep == 0; --n) {
      const std::string_view tail = std::string_view(text_).substr(text_.size() - n);
      if (std::string_view(end).starts_with(tail) || words_.value_end.starts_with(tail)) keep = n;
    }
    const std::string_view sure = std::string_view(text_).substr(0, text_.size() - keep);
    if (!sure.empty()) add_event(events, Kind::call_arguments, json_escaped(sure));
    text_.erase(0, sure.size());
    return State::more;
  }

  State end_value(Events& events) {
    std::string_view value(text_);
    value.remove_suffix(words_.value_end.size());
    if (words_.strip_newlines && value.ends_with('\n')) value.remove_suffix(1);
    add_event(events, Kind::call_arguments,
              as_text_ ? json_escaped(value) + "\"" : coerced(trimmed(value)));
    return go(At::between);
  }

  // By the schema: a number, a truth, an object or a list where the text is one; else a string.
  std::string coerced(std::string_view value) const {
    std::string word(value);
    if (type_ == "boolean" || value == "None") {
      for (char& c : word)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (word == "none") word = "null";
    }
    if (parse_json(word, "parameter").ok()) return word;
    return "\"" + json_escaped(value) + "\"";
  }

  void finish(Events& events) const {
    add_event(events, Kind::call_arguments, n_parameters_ == 0 ? "{}" : "}");
    add_event(events, Kind::call_end, "");
  }

  const XmlWords& words_;
  const ParameterType parameter_type_;
  At at_;
  std::string text_;  // since the last thing that was understood
  std::string tool_;
  std::string type_;
  int n_parameters_ = 0;
  bool as_text_ = true;
  bool first_ = false;
};

// call:NAME{key:value,..} with strings between <|"|> and bare keys.
class GemmaReader final : public CallReader {
public:
  State put(char c, Events& events) override {
    if (!named_) {
      word_ += c;
      if (c != '{') return State::more;
      std::string_view head = trimmed(std::string_view(word_).substr(0, word_.size() - 1));
      if (!head.starts_with("call:")) return State::not_calls;
      named_ = true;
      add_event(events, Kind::call_begin, head.substr(5));
      add_event(events, Kind::call_arguments, "{");
      depth_ = 1;
      word_.clear();
      return State::more;
    }
    return in_string_ ? put_string(c, events) : put_plain(c, events);
  }

private:
  static constexpr std::string_view kQuote = "<|\"|>";

  State put_string(char c, Events& events) {
    word_ += c;
    if (word_.ends_with(kQuote)) {
      word_.resize(word_.size() - kQuote.size());
      add_event(events, Kind::call_arguments, json_escaped(word_) + "\"");
      word_.clear();
      in_string_ = false;
      return State::more;
    }
    size_t keep = 0;
    for (size_t n = std::min(word_.size(), kQuote.size() - 1); n > 0 && keep == 0; --n)
      if (kQuote.starts_with(std::string_view(word_).substr(word_.size() - n))) keep = n;
    const std::string_view sure = std::string_view(word_).substr(0, word_.size() - keep);
    if (!sure.empty()) add_event(events, Kind::call_arguments, json_escaped(sure));
    word_.erase(0, sure.size());
    return State::more;
  }

  State put_plain(char c, Events& events) {
    if (c == ':' || c == ',' || c == '}' || c == ']' || c == '{' || c == '[') {
      const std::string_view word = trimmed(word_);
      if (!word.empty())
        add_event(events, Kind::call_arguments,
                  c != ':' && parse_json(word, "value").ok() ? std::string(word)
                                                             : "\"" + json_escaped(word) + "\"");
      word_.clear();
      add_event(events, Kind::call_arguments, {&c, 1});
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') --depth_;
      if (depth_ > 0) return State::more;
      add_event(events, Kind::call_end, "");
      return State::done;
    }
    word_ += c;
    if (trimmed(word_) == kQuote) {
      word_.clear();
      in_string_ = true;
      add_event(events, Kind::call_arguments, "\"");
    }
    return State::more;
  }

  bool named_ = false;
  bool in_string_ = false;
  int depth_ = 0;
  std::string word_;
};

// <tool_call> of models that write JSON or XML in it: the first character tells.
class TaggedReader final : public CallReader {
public:
  TaggedReader(std::string_view marker, ParameterType parameter_type)
      : marker_(marker), parameter_type_(std::move(parameter_type)) {}

  State put(char c, Events& events) override {
    if (reader_ == nullptr) {
      if (is_space(c)) return State::more;
      if (c == '{') {
        reader_ = std::make_unique<JsonCallReader>(false);
      } else if (c == '<') {
        reader_ = std::make_unique<XmlReader>(kQwenXml, marker_, std::move(parameter_type_));
      } else {
        return State::not_calls;
      }
    }
    return reader_->put(c, events);
  }
  void flush(Events& events) override {
    if (reader_ != nullptr) reader_->flush(events);
  }

private:
  const std::string marker_;
  ParameterType parameter_type_;
  std::unique_ptr<CallReader> reader_;
};

}  // namespace

void add_event(std::vector<OutputEvent>& events, Kind kind, std::string_view text) {
  const bool joins =
      kind == Kind::reasoning || kind == Kind::content || kind == Kind::call_arguments;
  if (joins && text.empty()) return;
  if (joins && !events.empty() && events.back().kind == kind) {
    events.back().text += text;
    return;
  }
  events.push_back({kind, std::string(text)});
}

std::string json_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      escaped += c;
    } else {
      const std::string quoted = json_string({&c, 1});
      escaped.append(quoted, 1, quoted.size() - 2);
    }
  }
  return escaped;
}

JsonValueEnd::At JsonValueEnd::put(char c) {
  if (!started_) {
    if (is_space(c)) return At::inside;
    started_ = true;
    bare_ = c != '{' && c != '[' && c != '"';
  }
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 0) return At::last;
    }
    return At::inside;
  }
  if (bare_) return c == ',' || c == '}' || c == ']' || is_space(c) ? At::beyond : At::inside;
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && --depth_ == 0) return At::last;
  return At::inside;
}

std::unique_ptr<CallReader> make_call_reader(ToolStyle style, std::string_view marker,
                                             ParameterType parameter_type) {
  switch (style) {
  case ToolStyle::mistral:
  case ToolStyle::nemotron_json: return std::make_unique<MistralReader>();
  case ToolStyle::gemma: return std::make_unique<GemmaReader>();
  case ToolStyle::glm_xml:
    return std::make_unique<XmlReader>(kGlmXml, marker, std::move(parameter_type));
  case ToolStyle::llama_json: return std::make_unique<JsonCallReader>(marker == "{");
  default: break;
  }
  if (marker == kQwenXml.name_begin)
    return std::make_unique<XmlReader>(kQwenXml, marker, std::move(parameter_type));
  return std::make_unique<TaggedReader>(marker, std::move(parameter_type));
}

}  // namespace kapitsa::text
