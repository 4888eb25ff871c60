// Internal to the tokenizer.json reader: access to JSON with errors that name the place, and the
// pipeline parts (normalizer, pre-tokenizer, decoder) as rules of a TokenizerSpec.
#pragma once

#include "text/tokenizer.h"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace kapitsa::text::tokenizer_json {

Error corrupt(std::string_view where, std::string_view message);
Error unsupported(std::string_view where, std::string_view message);

// A member, or null when it is absent or JSON null.
const boost::json::value* find(const boost::json::object& object, std::string_view key);
inline std::string_view view(const boost::json::string& s) {
  return {s.data(), s.size()};
}

Result<const boost::json::object*> as_object(const boost::json::value& value,
                                             std::string_view where);
Result<const boost::json::array*> as_array(const boost::json::value& value, std::string_view where);
Result<std::string_view> string_member(const boost::json::object& object, std::string_view key,
                                       std::string_view where);
Result<std::string_view> string_or(const boost::json::object& object, std::string_view key,
                                   std::string_view otherwise, std::string_view where);
Result<bool> bool_or(const boost::json::object& object, std::string_view key, bool otherwise,
                     std::string_view where);
Result<int64_t> integer_member(const boost::json::object& object, std::string_view key,
                               std::string_view where);

struct Pipeline {
  std::vector<NormalizeRule> normalize;
  std::vector<NormalizeRule> prepare;
  std::vector<SplitRule> split;
  bool byte_level = false;         // the pre-tokenizer ends with the step to the byte alphabet
  bool strip_first_space = false;  // from the decoder
};

// `root` is the whole file.
Result<Pipeline> read_pipeline(const boost::json::object& root);

}  // namespace kapitsa::text::tokenizer_json
