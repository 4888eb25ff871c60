#include "server/api/fields.h"

#include "base/json.h"
#include "base/json_write.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <cmath>

namespace kapitsa::server::api {
namespace {

namespace json = boost::json;

constexpr JsonLimits kLimits{.max_depth = 128, .max_bytes = size_t{256} << 20};

std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
  case json::kind::null: return "null";
  case json::kind::bool_: return "a boolean";
  case json::kind::int64:
  case json::kind::uint64: return "an integer";
  case json::kind::double_: return "a number";
  case json::kind::string: return "a string";
  case json::kind::array: return "an array";
  case json::kind::object: return "an object";
  }
  return "something else";
}

void write(JsonWriter& out, const json::value& value) {
  switch (value.kind()) {
  case json::kind::null: out.null(); return;
  case json::kind::bool_: out.value(value.get_bool()); return;
  case json::kind::int64: out.value(value.get_int64()); return;
  case json::kind::uint64: out.value(value.get_uint64()); return;
  case json::kind::double_: out.value(value.get_double()); return;
  case json::kind::string: out.value(view(value.get_string())); return;
  case json::kind::array:
    out.begin_array();
    for (const json::value& item : value.get_array())
      write(out, item);
    out.end_array();
    return;
  case json::kind::object:
    out.begin_object();
    for (const auto& member : value.get_object()) {
      out.key({member.key().data(), member.key().size()});
      write(out, member.value());
    }
    out.end_object();
    return;
  }
}

bool neutral(const json::value& value) {
  switch (value.kind()) {
  case json::kind::null: return true;
  case json::kind::bool_: return !value.get_bool();
  case json::kind::int64: return value.get_int64() == 0;
  case json::kind::uint64: return value.get_uint64() == 0;
  case json::kind::double_: return value.get_double() == 0.0;
  case json::kind::string: return value.get_string().empty();
  case json::kind::array: return value.get_array().empty();
  case json::kind::object: return value.get_object().empty();
  }
  return false;
}

}  // namespace

const json::value* Fields::any(std::string_view name) const {
  if (!ok()) return nullptr;
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const json::value* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = value->if_string()) return std::string(view(*text));
  wrong(name, "a string", *value);
  return std::nullopt;
}

std::optional<bool> Fields::flag(std::string_view name) const {
  const json::value* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (const bool* flag = value->if_bool()) return *flag;
  wrong(name, "a boolean", *value);
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) const {
  const json::value* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    wrong(name, "a number", *value);
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  if (number >= low && number <= high) return number;
  fail(name,
       fmt::format("{}: expected a number from {} to {}, found {}", path(name), low, high, number));
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) const {
  const auto number = this->number(name, static_cast<double>(low), static_cast<double>(high));
  if (!number) return std::nullopt;
  // A double holds what JSON clients send; 64-bit seeds keep all their bits.
  const json::value* value = any(name);
  if (const int64_t* exact = value->if_int64()) return *exact;
  if (*number == std::floor(*number) && std::abs(*number) < 9.0e18)
    return static_cast<int64_t>(*number);
  fail(name, fmt::format("{}: expected a whole number, found {}", path(name), *number));
  return std::nullopt;
}

const json::array* Fields::list(std::string_view name) const {
  const json::value* value = any(name);
  if (value == nullptr) return nullptr;
  if (const auto* list = value->if_array()) return list;
  wrong(name, "an array", *value);
  return nullptr;
}

const json::object* Fields::object(std::string_view name) const {
  const json::value* value = any(name);
  if (value == nullptr) return nullptr;
  if (const auto* object = value->if_object()) return object;
  wrong(name, "an object", *value);
  return nullptr;
}

const json::object* Fields::element(const json::array& list, std::string_view name,
                                    size_t i) const {
  if (!ok()) return nullptr;
  if (const auto* object = list[i].if_object()) return object;
  error_ = invalid(path(name, i), fmt::format("{}: expected an object, found {}", path(name, i),
                                              kind_of(list[i])));
  return nullptr;
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

std::string Fields::path(std::string_view name, size_t i) const {
  return fmt::format("{}[{}]", path(name), i);
}

void Fields::fail(std::string_view name, std::string message, std::string code) const {
  if (ok()) error_ = invalid(path(name), std::move(message), std::move(code));
}

void Fields::refuse(std::string_view name, std::string_view why) const {
  const json::value* value = any(name);
  if (value == nullptr || neutral(*value)) return;
  fail(name, fmt::format("{}: {}", path(name), why), "unsupported_parameter");
}

std::string Fields::required_text(std::string_view name) const {
  if (ok() && !has(name))
    fail(name, fmt::format("{}: expected a string, found none", path(name)),
         "missing_required_parameter");
  return text(name).value_or("");
}

void Fields::wrong(std::string_view name, std::string_view expected,
                   const json::value& found) const {
  fail(name, fmt::format("{}: expected {}, found {}", path(name), expected, kind_of(found)),
       "invalid_type");
}

std::optional<json::object> parse_body(std::string_view body, ApiError& error) {
  auto parsed = parse_json(body, "request body", kLimits);
  if (!parsed) {
    error = invalid("", parsed.error().message, "invalid_json");
    return std::nullopt;
  }
  if (auto* object = parsed->if_object()) return std::move(*object);
  error =
      invalid("", fmt::format("request body: expected a JSON object, found {}", kind_of(*parsed)));
  return std::nullopt;
}

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

std::string json_text(const json::value& value) {
  JsonWriter out;
  write(out, value);
  return out.take();
}

}  // namespace kapitsa::server::api
