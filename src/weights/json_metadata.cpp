// Turns JSON into the flat metadata of a Checkpoint.
#include "weights/json_metadata.h"

#include "base/json.h"
#include "weights/describe.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kapitsa::weights {
namespace {

namespace json = boost::json;

// A short file with one long key above many values must not become a large one in memory.
constexpr size_t kMaxKeyBytes = 512;

// Python writes infinities as Infinity, which is not JSON. A number of the same length takes their
// place, so that offsets in errors stay true. Text inside strings is left alone.
std::string replace_infinity(std::string_view text) {
  constexpr std::string_view kInfinity = "Infinity";
  constexpr std::string_view kLargest = "1.79e308";
  static_assert(kInfinity.size() == kLargest.size());
  std::string out(text);
  bool in_string = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (in_string && out[i] == '\\')
      ++i;
    else if (out[i] == '"')
      in_string = !in_string;
    else if (!in_string && std::string_view(out).substr(i).starts_with(kInfinity))
      out.replace(i, kInfinity.size(), kLargest);
  }
  return out;
}

template <typename Predicate>
bool all_of(const json::array& array, Predicate predicate) {
  return std::all_of(array.begin(), array.end(), predicate);
}

bool is_integer(const json::value& value) {
  return value.is_int64();
}
bool is_number(const json::value& value) {
  return value.is_number();
}

// One value for an array of one kind of scalar; nullopt for any other.
std::optional<Value> array_value(const json::array& array) {
  if (all_of(array, [](const json::value& v) { return v.is_string(); })) {
    StringList list;
    for (const json::value& item : array)
      list.push_back(item.get_string());
    return Value(std::move(list));
  }
  if (all_of(array, [](const json::value& v) { return v.is_bool(); })) {
    std::vector<bool> values;
    for (const json::value& item : array)
      values.push_back(item.get_bool());
    return Value(std::move(values));
  }
  if (all_of(array, is_integer)) {
    std::vector<int64_t> values;
    for (const json::value& item : array)
      values.push_back(item.get_int64());
    return Value(std::move(values));
  }
  if (all_of(array, is_number)) {
    std::vector<double> values;
    for (const json::value& item : array)
      values.push_back(item.to_number<double>());
    return Value(std::move(values));
  }
  return std::nullopt;
}

class Flattener {
public:
  Flattener(const std::string& file, Checkpoint& checkpoint)
      : file_(file), checkpoint_(checkpoint) {}

  // Recursion is bounded by the depth limit of parse_json.
  Status add(std::string key, const json::value& value) {
    switch (value.kind()) {
    case json::kind::null: return {};
    case json::kind::bool_: return set(std::move(key), value.get_bool());
    case json::kind::int64: return set(std::move(key), int64_t{value.get_int64()});
    case json::kind::uint64: return set(std::move(key), uint64_t{value.get_uint64()});
    case json::kind::double_: return set(std::move(key), value.get_double());
    case json::kind::string: return set(std::move(key), std::string(value.get_string()));
    case json::kind::object:
      for (const auto& [name, item] : value.get_object())
        KAPITSA_TRY(add(join(key, name), item));
      return {};
    case json::kind::array: break;
    }
    const json::array& array = value.get_array();
    if (std::optional<Value> flat = array_value(array)) return set(std::move(key), *flat);
    for (size_t i = 0; i < array.size(); ++i)
      KAPITSA_TRY(add(join(key, std::to_string(i)), array[i]));
    return {};
  }

private:
  static std::string join(const std::string& key, std::string_view name) {
    return key.empty() ? std::string(name) : fmt::format("{}.{}", key, name);
  }

  Status set(std::string key, Value value) {
    const std::string name = quote(key);
    if (key.size() > kMaxKeyBytes)
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: expected joined keys of at most {} bytes, found {}", file_,
                               kMaxKeyBytes, name)};
    if (checkpoint_.set(std::move(key), std::move(value))) return {};
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected each key once, found {} again", file_, name)};
  }

  const std::string& file_;
  Checkpoint& checkpoint_;
};

}  // namespace

Status add_json_metadata(std::string_view text, const std::string& file, std::string_view prefix,
                         Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const json::value value, parse_json(replace_infinity(text), file));
  if (!value.is_object())
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected a JSON object, found another value", file)};
  return Flattener(file, checkpoint).add(std::string(prefix), value);
}

}  // namespace kapitsa::weights
