// Python's printf-style formatting: flags, width, precision, and named or positional arguments.
#include "text/jinja/format.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstdio>

namespace kapitsa::text::jinja {

namespace {

constexpr int kMaxWidth = 4096;

Error invalid(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message)};
}

struct Field {
  std::string flags;
  int width = 0;
  int precision = -1;
  char conversion = 's';
  bool has(char flag) const { return flags.find(flag) != std::string::npos; }
};

class Formatter {
public:
  Formatter(const Str& format, const Value& arguments, size_t max_bytes)
      : format_(format), arguments_(arguments), max_bytes_(max_bytes) {}

  Result<Str> run() {
    const std::string_view text = format_.view();
    while (pos_ < text.size()) {
      size_t percent = text.find('%', pos_);
      if (percent == std::string_view::npos) percent = text.size();
      out_.append(format_, pos_, percent);
      pos_ = percent;
      if (pos_ == text.size()) break;
      ++pos_;
      KAPITSA_TRY(field());
      if (out_.size() > max_bytes_)
        return invalid(fmt::format("formatted text is longer than {} bytes", max_bytes_));
    }
    const bool is_tuple = arguments_.is_list() && arguments_.as_list()->is_tuple;
    const size_t n_given = is_tuple ? arguments_.as_list()->items.size() : 1;
    if (next_ < n_given && !arguments_.is_dict() && !(arguments_.is_list() && !is_tuple))
      return invalid("not all arguments converted during string formatting");
    return std::move(out_);
  }

private:
  char peek() const { return pos_ < format_.size() ? format_.view()[pos_] : '\0'; }

  Result<int> number() {
    int value = 0;
    while (std::isdigit(static_cast<unsigned char>(peek()))) {
      value = value * 10 + (peek() - '0');
      if (value > kMaxWidth) return invalid("format width is too large");
      ++pos_;
    }
    return value;
  }

  Result<Value> argument(const std::optional<std::string>& name) {
    if (name) {
      const Value* value = arguments_.is_dict() ? arguments_.as_dict()->find(*name) : nullptr;
      if (!value) return invalid(fmt::format("format argument '{}' is missing", *name));
      return *value;
    }
    const bool is_tuple = arguments_.is_list() && arguments_.as_list()->is_tuple;
    const size_t n = is_tuple ? arguments_.as_list()->items.size() : 1;
    if (next_ >= n) return invalid("not enough arguments for format string");
    const size_t i = next_++;
    return is_tuple ? arguments_.as_list()->items[i] : arguments_;
  }

  Status field() {
    std::optional<std::string> name;
    if (peek() == '(') {
      const size_t close = format_.view().find(')', pos_);
      if (close == std::string_view::npos) return invalid("incomplete format key");
      name = std::string(format_.view().substr(pos_ + 1, close - pos_ - 1));
      pos_ = close + 1;
    }
    Field f;
    while (std::string_view("-+ #0").find(peek()) != std::string_view::npos && peek() != '\0')
      f.flags += format_.view()[pos_++];
    KAPITSA_ASSIGN(f.width, number());
    if (peek() == '.') {
      ++pos_;
      KAPITSA_ASSIGN(f.precision, number());
    }
    if (pos_ >= format_.size()) return invalid("incomplete format");
    f.conversion = format_.view()[pos_++];
    if (f.conversion == '%') {
      out_.append("%");
      return {};
    }
    KAPITSA_ASSIGN(const Value value, argument(name));
    return convert(f, value);
  }

  Status convert(const Field& f, const Value& value) {
    switch (f.conversion) {
    case 's':
    case 'r':
    case 'a': return text(f, value);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': return integer(f, value);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': return real(f, value);
    default:
      return invalid(
          fmt::format("unsupported format character '{}'",
                      std::isprint(static_cast<unsigned char>(f.conversion)) ? f.conversion : '?'));
    }
  }

  Status text(const Field& f, const Value& value) {
    Str s;
    if (f.conversion == 's') {
      KAPITSA_ASSIGN(s, to_str(value, max_bytes_));
    } else {
      // repr: print through a list and take off its brackets.
      KAPITSA_ASSIGN(const Str listed, to_str(Value::list({value}), max_bytes_));
      s = listed.substr(1, listed.size() - 1);
    }
    const std::vector<size_t> offsets = s.codepoint_offsets();
    size_t n = offsets.size() - 1;
    if (f.precision >= 0 && static_cast<size_t>(f.precision) < n)
      n = static_cast<size_t>(f.precision);
    pad(f, s.substr(0, offsets[n]), n);
    return {};
  }

  Status integer(const Field& f, const Value& value) {
    const bool from_real = value.is(Value::Kind::real) && std::abs(value.real()) < 9e18 &&
                           std::string_view("diu").find(f.conversion) != std::string_view::npos;
    if (!value.is_integral() && !from_real)
      return invalid(
          fmt::format("%{} format: a number is required, not {}", f.conversion, value.type_name()));
    const int64_t number = from_real ? static_cast<int64_t>(value.real()) : value.integral();
    const uint64_t magnitude =
        number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    std::string digits;
    std::string prefix;
    switch (f.conversion) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      break;
    default: digits = std::to_string(magnitude);
    }
    if (f.precision > static_cast<int>(digits.size()))
      digits.insert(0, static_cast<size_t>(f.precision) - digits.size(), '0');
    numeric(f, number < 0, f.has('#') ? prefix : "", digits);
    return {};
  }

  Status real(const Field& f, const Value& value) {
    if (!value.is_number())
      return invalid(fmt::format("must be real number, not {}", value.type_name()));
    const double number = value.number();
    const char spec[] = {'%', '.', '*', f.conversion, '\0'};
    const int precision = f.precision < 0 ? 6 : f.precision;
    const int size = std::snprintf(nullptr, 0, spec, precision, std::abs(number));
    std::string digits(static_cast<size_t>(size) + 1, '\0');
    std::snprintf(digits.data(), digits.size(), spec, precision, std::abs(number));
    digits.pop_back();
    numeric(f, std::signbit(number), "", digits);
    return {};
  }

  void numeric(const Field& f, bool negative, std::string_view prefix, std::string_view digits) {
    std::string s = negative ? "-" : f.has('+') ? "+" : f.has(' ') ? " " : "";
    s += prefix;
    const size_t used = s.size() + digits.size();
    if (f.has('0') && !f.has('-') && used < static_cast<size_t>(f.width))
      s.append(static_cast<size_t>(f.width) - used, '0');
    s += digits;
    const size_t n = s.size();
    pad(f, Str(std::move(s)), n);
  }

  void pad(const Field& f, const Str& s, size_t n_codepoints) {
    const auto width = static_cast<size_t>(f.width);
    const std::string space(width > n_codepoints ? width - n_codepoints : 0, ' ');
    if (!f.has('-')) out_.append(space);
    out_.append(s);
    if (f.has('-')) out_.append(space);
  }

  const Str& format_;
  const Value& arguments_;
  size_t max_bytes_;
  size_t pos_ = 0;
  size_t next_ = 0;  // positional arguments used
  Str out_;
};

}  // namespace

Result<Str> percent_format(const Str& format, const Value& arguments, size_t max_bytes) {
  return Formatter(format, arguments, max_bytes).run();
}

}  // namespace kapitsa::text::jinja
