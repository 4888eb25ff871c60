// str.format: fields of an argument each, by place or by name. A format spec is carried out by the
// % operator, which knows the same conversions; attributes and items of arguments stay closed, as
// in the sandbox of the reference.
#include "text/jinja/format.h"
#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include <charconv>

namespace kapitsa::text::jinja {
namespace {

class BraceFormatter {
public:
  BraceFormatter(const Str& format, const Arguments& arguments, size_t max_bytes)
      : format_(format), arguments_(arguments), max_bytes_(max_bytes) {}

  Result<Str> run() {
    const std::string_view text = format_.view();
    for (size_t at = 0; at < text.size();) {
      const size_t brace = text.find_first_of("{}", at);
      out_.append(format_, at, std::min(brace, text.size()));
      if (brace == std::string_view::npos) break;
      if (text.substr(brace, 2) == "{{" || text.substr(brace, 2) == "}}") {
        out_.append(format_, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      const size_t close = text.find('}', brace);
      if (text[brace] == '}' || close == std::string_view::npos)
        return Runtime::error("format(): a single '{' or '}' is not allowed");
      KAPITSA_TRY(field(text.substr(brace + 1, close - brace - 1)));
      if (out_.size() > max_bytes_) return Runtime::error("format(): the text is too long");
      at = close + 1;
    }
    return out_;
  }

private:
  // NAME, !CONVERSION and :SPEC, each optional.
  Status field(std::string_view text) {
    const size_t colon = text.find(':');
    const std::string_view spec = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    text = text.substr(0, colon);
    std::string_view conversion = "s";
    if (const size_t mark = text.find('!'); mark != std::string_view::npos) {
      conversion = text.substr(mark + 1);
      text = text.substr(0, mark);
      if (conversion != "s" && conversion != "r")
        return Runtime::error(fmt::format("format(): unknown conversion '{}'", conversion));
    }
    KAPITSA_ASSIGN(const Value value, argument(text));
    KAPITSA_ASSIGN(const std::string percent, percent_spec(spec, value, conversion));
    KAPITSA_ASSIGN(const Str shown,
                   percent_format(Str(percent), Value::tuple({value}), max_bytes_));
    out_.append(shown);
    return {};
  }

  Result<Value> argument(std::string_view name) {
    size_t place = next_;
    if (name.empty()) {
      ++next_;
    } else {
      const char* begin = name.data();
      const char* end = begin + name.size();
      const auto [stop, error] = std::from_chars(begin, end, place);
      if (error != std::errc() || stop != end) {
        for (const auto& [key, value] : arguments_.named) {
          if (key == name) return value;
        }
        return Runtime::error(fmt::format("format(): there is no argument '{}'", name));
      }
    }
    if (place < arguments_.positional.size()) return arguments_.positional[place];
    return Runtime::error(fmt::format("format(): there is no argument {}", place));
  }

  // [<>][0][width][.precision][type] as a % conversion.
  static Result<std::string> percent_spec(std::string_view spec, const Value& value,
                                          std::string_view conversion) {
    const bool is_text = conversion == "r" || !value.is_number();
    std::string percent = "%";
    size_t at = 0;
    const bool aligned = !spec.empty() && (spec[0] == '<' || spec[0] == '>');
    if (aligned ? spec[0] == '<' : is_text) percent += '-';
    if (aligned) at = 1;
    while (at < spec.size() &&
           (spec[at] == '.' || spec[at] == '+' || (spec[at] >= '0' && spec[at] <= '9')))
      percent += spec[at++];
    const std::string_view type = spec.substr(at);
    constexpr std::string_view kTypes = "dfFeEgGxXo";
    if (type.empty() || type == "s") return percent + std::string(conversion);
    if (!is_text && type.size() == 1 && kTypes.find(type[0]) != std::string_view::npos)
      return percent + std::string(type);
    return Runtime::error(fmt::format("format(): the format spec '{}' is not supported", spec));
  }

  const Str& format_;
  const Arguments& arguments_;
  size_t max_bytes_;
  size_t next_ = 0;  // arguments without a name used
  Str out_;
};

}  // namespace

Result<Str> brace_format(const Str& format, const Arguments& arguments, size_t max_bytes) {
  return BraceFormatter(format, arguments, max_bytes).run();
}

}  // namespace kapitsa::text::jinja
