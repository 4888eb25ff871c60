// str(), repr() and json.dumps(). One writer for both, because they differ only in spelling; it
// stops at a byte limit, since shared containers can print exponentially long.
#include "text/jinja/format.h"

#include "text/utf8.h"

#include <utf8proc.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kapitsa::text::jinja {

namespace {

constexpr int kMaxPrintDepth = 100;

Error invalid(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message)};
}

// str.isprintable() for one code point.
bool is_printable(char32_t codepoint) {
  if (codepoint == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(codepoint))) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_ZS:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP: return false;
  default: return true;
  }
}

void append_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_decode(text, pos);
    const char32_t c = step.codepoint;
    if (!step.valid)
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[pos]));
    else if (c == static_cast<unsigned char>(quote) || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      out += text.substr(pos, step.length);
    else
      out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
             : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                           : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    pos += step.valid ? step.length : 1;
  }
  out += quote;
}

void append_json_codepoint(std::string& out, char32_t c) {
  if (c >= 0x10000) {
    append_json_codepoint(out, 0xD800 + ((c - 0x10000) >> 10));
    append_json_codepoint(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
    return;
  }
  out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_decode(text, pos);
    const char32_t c = step.codepoint;
    switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    case '\b': out += "\\b"; break;
    case '\f': out += "\\f"; break;
    default:
      if (c < 0x20 || (ensure_ascii && c > 0x7E))
        append_json_codepoint(out, c);
      else
        out += text.substr(pos, step.length);
    }
    pos += step.length;
  }
  out += '"';
}

class Writer {
public:
  Writer(const JsonStyle* json, size_t max_bytes) : json_(json), max_bytes_(max_bytes) {}

  Status write(const Value& value, int depth = 0) {
    if (depth > kMaxPrintDepth) return invalid("value is nested too deeply to print");
    if (out_.size() > max_bytes_)
      return invalid(fmt::format("printed value is longer than {} bytes", max_bytes_));
    switch (value.kind()) {
    case Value::Kind::none: out_ += json_ ? "null" : "None"; return {};
    case Value::Kind::boolean:
      out_ += json_ ? (value.boolean() ? "true" : "false") : (value.boolean() ? "True" : "False");
      return {};
    case Value::Kind::integer: out_ += std::to_string(value.integral()); return {};
    case Value::Kind::real: write_real(value.real()); return {};
    case Value::Kind::string: write_string(value.string()); return {};
    case Value::Kind::list: return write_list(*value.as_list(), depth);
    case Value::Kind::dict: return write_dict(*value.as_dict(), depth);
    default: break;
    }
    if (json_)
      return invalid(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    out_ += value.is_undefined() ? std::string("Undefined")
                                 : fmt::format("<{} object>", value.type_name());
    return {};
  }

  Str take() {
    return Str(std::move(out_), has_user_text_ ? Str::Origin::user : Str::Origin::trusted);
  }

private:
  void write_real(double value) {
    if (json_ && !std::isfinite(value))
      out_ += std::isnan(value) ? "NaN" : (value > 0 ? "Infinity" : "-Infinity");
    else
      out_ += real_repr(value);
  }

  void write_string(const Str& text) {
    has_user_text_ = has_user_text_ || text.has_user_text();
    if (json_)
      append_json_string(out_, text.view(), json_->ensure_ascii);
    else
      append_repr(out_, text.view());
  }

  void separate(bool first, int depth) {
    if (!first) out_ += json_ ? std::string_view(json_->item_separator) : ", ";
    new_line(depth);
  }
  void new_line(int depth) {
    if (!json_ || !json_->indent) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i)
      out_ += *json_->indent;
  }

  Status write_list(const List& list, int depth) {
    const bool parentheses = list.is_tuple && !json_;
    out_ += parentheses ? '(' : '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      separate(i == 0, depth + 1);
      KAPITSA_TRY(write(list.items[i], depth + 1));
    }
    if (!list.items.empty()) new_line(depth);
    if (parentheses && list.items.size() == 1) out_ += ',';
    out_ += parentheses ? ')' : ']';
    return {};
  }

  Status write_dict(const Dict& dict, int depth) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries())
      entries.push_back(&entry);
    if (json_ && json_->sort_keys) {
      WorkLimit limit{int64_t{1} << 40};
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(a->first, b->first, limit) == Order::less;
      });
    }
    out_ += '{';
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      separate(first, depth + 1);
      first = false;
      write_key(entry->first);
      out_ += json_ ? std::string_view(json_->key_separator) : ": ";
      KAPITSA_TRY(write(entry->second, depth + 1));
    }
    if (!first) new_line(depth);
    out_ += '}';
    return {};
  }

  void write_key(const Value& key) {
    const bool quote = json_ && !key.is_string();
    if (quote) out_ += '"';
    (void)write(key);  // a key is a scalar: only the byte limit can fail, and the next write fails
    if (quote) out_ += '"';
  }

  const JsonStyle* json_;  // null: Python's repr
  size_t max_bytes_;
  std::string out_;
  bool has_user_text_ = false;
};

}  // namespace

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const auto n_digits = static_cast<int>(digits.size());
  // float.__repr__ uses an exponent outside [1e-4, 1e16).
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n_digits > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n_digits <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - n_digits), '0') + ".0";
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

Result<Str> to_str(const Value& value, size_t max_bytes) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return Str();
  Writer writer(nullptr, max_bytes);
  KAPITSA_TRY(writer.write(value));
  return writer.take();
}

Result<Str> to_json(const Value& value, const JsonStyle& style, size_t max_bytes) {
  Writer writer(&style, max_bytes);
  KAPITSA_TRY(writer.write(value));
  return writer.take();
}

}  // namespace kapitsa::text::jinja
