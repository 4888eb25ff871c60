// Normalizers, pre-tokenizers and decoders of tokenizer.json. Steps that change the text (prefixes,
// space marks) must come before steps that cut it, as in all files known: then they are rules on
// whole stretches of text.
#include "text/tokenizer_json_parts.h"

#include "text/quoted.h"

#include <fmt/format.h>

namespace kapitsa::text::tokenizer_json {

using boost::json::array;
using boost::json::object;
using boost::json::value;

Error corrupt(std::string_view where, std::string_view message) {
  return {ErrorCode::corrupt_file, fmt::format("tokenizer.json: {}: {}", where, message)};
}
Error unsupported(std::string_view where, std::string_view message) {
  return {ErrorCode::unsupported, fmt::format("tokenizer.json: {}: {}", where, message)};
}

const value* find(const object& object, std::string_view key) {
  const value* found = object.if_contains({key.data(), key.size()});
  return found && !found->is_null() ? found : nullptr;
}

Result<const object*> as_object(const value& value, std::string_view where) {
  if (const object* found = value.if_object()) return found;
  return corrupt(where, "expected an object");
}

Result<const array*> as_array(const value& value, std::string_view where) {
  if (const array* found = value.if_array()) return found;
  return corrupt(where, "expected an array");
}

Result<std::string_view> string_member(const object& object, std::string_view key,
                                       std::string_view where) {
  const value* found = find(object, key);
  if (!found || !found->is_string())
    return corrupt(where, fmt::format("expected a string '{}'", key));
  return view(found->get_string());
}

Result<std::string_view> string_or(const object& object, std::string_view key,
                                   std::string_view otherwise, std::string_view where) {
  if (!find(object, key)) return otherwise;
  return string_member(object, key, where);
}

Result<bool> bool_or(const object& object, std::string_view key, bool otherwise,
                     std::string_view where) {
  const value* found = find(object, key);
  if (!found) return otherwise;
  if (!found->is_bool()) return corrupt(where, fmt::format("expected true or false for '{}'", key));
  return found->get_bool();
}

Result<int64_t> integer_member(const object& object, std::string_view key, std::string_view where) {
  const value* found = find(object, key);
  if (!found || !found->is_int64())
    return corrupt(where, fmt::format("expected an integer '{}'", key));
  return found->get_int64();
}

namespace {

constexpr int kMaxNesting = 8;  // of Sequence in Sequence
constexpr std::string_view kGpt2Name = "gpt-2";

// Calls f(step, type) for the part, or for each step when it is a Sequence.
template <typename F>
Status for_each_step(const value& part, std::string_view where, std::string_view list_key,
                     const F& f, int depth = 0) {
  if (depth > kMaxNesting) return corrupt(where, "Sequence is nested too deeply");
  KAPITSA_ASSIGN(const object* step, as_object(part, where));
  KAPITSA_ASSIGN(const std::string_view type, string_member(*step, "type", where));
  if (type != "Sequence") return f(*step, type);
  const value* list = find(*step, list_key);
  if (!list) return corrupt(where, fmt::format("expected an array '{}'", list_key));
  KAPITSA_ASSIGN(const array* steps, as_array(*list, where));
  for (const value& inner : *steps)
    KAPITSA_TRY(for_each_step(inner, where, list_key, f, depth + 1));
  return {};
}

// {"String": text} or {"Regex": pattern}.
struct Pattern {
  std::string_view text;
  bool is_regex = false;
};
Result<Pattern> read_pattern(const object& step, std::string_view where) {
  const value* found = find(step, "pattern");
  if (!found) return corrupt(where, "expected 'pattern'");
  KAPITSA_ASSIGN(const object* pattern, as_object(*found, where));
  const bool is_regex = find(*pattern, "Regex") != nullptr;
  KAPITSA_ASSIGN(const std::string_view text,
                 string_member(*pattern, is_regex ? "Regex" : "String", where));
  if (text.empty()) return corrupt(where, "the pattern is empty");
  return Pattern{text, is_regex};
}

std::string escaped(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    constexpr std::string_view kSpecial = R"(\^$.|?*+()[]{}-#)";
    if (kSpecial.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Status add_normalizer(const object& step, std::string_view type, Pipeline& out) {
  using Kind = NormalizeRule::Kind;
  constexpr std::string_view kWhere = "normalizer";
  constexpr std::pair<std::string_view, Kind> kSimple[] = {{"NFC", Kind::nfc},
                                                           {"NFD", Kind::nfd},
                                                           {"NFKC", Kind::nfkc},
                                                           {"NFKD", Kind::nfkd},
                                                           {"Lowercase", Kind::lowercase}};
  for (const auto& [name, kind] : kSimple) {
    if (type != name) continue;
    out.normalize.push_back({kind, "", ""});
    return {};
  }
  if (type == "Prepend") {
    KAPITSA_ASSIGN(const std::string_view text, string_member(step, "prepend", kWhere));
    out.normalize.push_back({Kind::prepend, "", std::string(text)});
    return {};
  }
  if (type == "Replace") {
    KAPITSA_ASSIGN(const Pattern pattern, read_pattern(step, kWhere));
    KAPITSA_ASSIGN(const std::string_view content, string_member(step, "content", kWhere));
    out.normalize.push_back({pattern.is_regex ? Kind::replace_regex : Kind::replace,
                             std::string(pattern.text), std::string(content)});
    return {};
  }
  if (type == "Strip") {
    KAPITSA_ASSIGN(const bool left, bool_or(step, "strip_left", true, kWhere));
    KAPITSA_ASSIGN(const bool right, bool_or(step, "strip_right", true, kWhere));
    if (left) out.normalize.push_back({Kind::strip_left, "", ""});
    if (right) out.normalize.push_back({Kind::strip_right, "", ""});
    return {};
  }
  return unsupported(kWhere, fmt::format("type {} is not supported", quoted(type)));
}

Result<SplitBehaviour> read_behaviour(const object& step) {
  KAPITSA_ASSIGN(const std::string_view name,
                 string_or(step, "behavior", "Isolated", "pre_tokenizer"));
  constexpr std::pair<std::string_view, SplitBehaviour> kNames[] = {
      {"Isolated", SplitBehaviour::isolated},
      {"Removed", SplitBehaviour::removed},
      {"MergedWithPrevious", SplitBehaviour::merged_with_previous},
      {"MergedWithNext", SplitBehaviour::merged_with_next},
      {"Contiguous", SplitBehaviour::contiguous}};
  for (const auto& [known, behaviour] : kNames)
    if (name == known) return behaviour;
  return unsupported("pre_tokenizer", fmt::format("behavior {} is unknown", quoted(name)));
}

Status add_byte_level(const object& step, Pipeline& out) {
  constexpr std::string_view kWhere = "pre_tokenizer.ByteLevel";
  KAPITSA_ASSIGN(const bool prefix, bool_or(step, "add_prefix_space", true, kWhere));
  KAPITSA_ASSIGN(const bool use_regex, bool_or(step, "use_regex", true, kWhere));
  if (prefix && !out.split.empty())
    return unsupported(kWhere, "add_prefix_space after a step that cuts the text");
  if (prefix) out.prepare.push_back({NormalizeRule::Kind::prepend_if_not, "", " "});
  if (use_regex)
    for (SplitRule& rule : pretokenizer_rules(kGpt2Name))
      out.split.push_back(std::move(rule));
  out.byte_level = true;
  return {};
}

Status add_metaspace(const object& step, Pipeline& out) {
  using Kind = NormalizeRule::Kind;
  constexpr std::string_view kWhere = "pre_tokenizer.Metaspace";
  if (!out.split.empty()) return unsupported(kWhere, "it follows a step that cuts the text");
  KAPITSA_ASSIGN(const std::string_view mark, string_or(step, "replacement", "\u2581", kWhere));
  KAPITSA_ASSIGN(const bool legacy_prefix, bool_or(step, "add_prefix_space", true, kWhere));
  KAPITSA_ASSIGN(const std::string_view scheme,
                 string_or(step, "prepend_scheme", legacy_prefix ? "always" : "never", kWhere));
  KAPITSA_ASSIGN(const bool cut, bool_or(step, "split", true, kWhere));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return unsupported(kWhere, fmt::format("prepend_scheme {} is unknown", quoted(scheme)));
  out.prepare.push_back({Kind::replace, " ", std::string(mark)});
  if (scheme != "never")
    out.prepare.push_back(
        {scheme == "first" ? Kind::prepend_first : Kind::prepend_if_not, "", std::string(mark)});
  if (cut) out.split.push_back({escaped(mark), SplitBehaviour::merged_with_next});
  return {};
}

Status add_pretokenizer(const object& step, std::string_view type, Pipeline& out) {
  constexpr std::string_view kWhere = "pre_tokenizer";
  if (out.byte_level) return unsupported(kWhere, "a step follows ByteLevel");
  if (type == "ByteLevel") return add_byte_level(step, out);
  if (type == "Metaspace") return add_metaspace(step, out);
  if (type == "Split") {
    KAPITSA_ASSIGN(const Pattern pattern, read_pattern(step, kWhere));
    KAPITSA_ASSIGN(const SplitBehaviour behaviour, read_behaviour(step));
    KAPITSA_ASSIGN(const bool invert, bool_or(step, "invert", false, kWhere));
    out.split.push_back(
        {pattern.is_regex ? std::string(pattern.text) : escaped(pattern.text), behaviour, invert});
    return {};
  }
  if (type == "Digits") {
    KAPITSA_ASSIGN(const bool individual, bool_or(step, "individual_digits", false, kWhere));
    out.split.push_back({individual ? R"(\p{N})" : R"(\p{N}+)"});
    return {};
  }
  if (type == "Punctuation") {
    KAPITSA_ASSIGN(const SplitBehaviour behaviour, read_behaviour(step));
    out.split.push_back({R"([\p{P}$+<=>^`|~])", behaviour});
    return {};
  }
  if (type == "Whitespace") {
    out.split.push_back({R"(\w+|[^\w\s]+)", SplitBehaviour::removed, true});
    return {};
  }
  if (type == "WhitespaceSplit") {
    out.split.push_back({R"(\s)", SplitBehaviour::removed});
    return {};
  }
  return unsupported(kWhere, fmt::format("type {} is not supported", quoted(type)));
}

// Token bytes already say how to decode; this looks for what they cannot say, and refuses the rest.
Status add_decoder(const object& step, std::string_view type, Pipeline& out) {
  constexpr std::string_view kWhere = "decoder";
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse" || type == "Replace")
    return {};
  if (type == "Metaspace") {
    KAPITSA_ASSIGN(const bool legacy_prefix, bool_or(step, "add_prefix_space", true, kWhere));
    KAPITSA_ASSIGN(const std::string_view scheme,
                   string_or(step, "prepend_scheme", legacy_prefix ? "always" : "never", kWhere));
    out.strip_first_space = scheme != "never";
    return {};
  }
  if (type == "Strip") {
    KAPITSA_ASSIGN(const int64_t start, integer_member(step, "start", kWhere));
    KAPITSA_ASSIGN(const int64_t stop, integer_member(step, "stop", kWhere));
    if (start < 0 || start > 1 || stop != 0)
      return unsupported(kWhere, "Strip of anything but one space at the start");
    out.strip_first_space = start == 1;
    return {};
  }
  return unsupported(kWhere, fmt::format("type {} is not supported", quoted(type)));
}

}  // namespace

Result<Pipeline> read_pipeline(const object& root) {
  Pipeline out;
  if (const value* part = find(root, "normalizer"))
    KAPITSA_TRY(for_each_step(*part, "normalizer", "normalizers",
                              [&out](const object& step, std::string_view type) {
                                return add_normalizer(step, type, out);
                              }));
  if (const value* part = find(root, "pre_tokenizer"))
    KAPITSA_TRY(for_each_step(*part, "pre_tokenizer", "pretokenizers",
                              [&out](const object& step, std::string_view type) {
                                return add_pretokenizer(step, type, out);
                              }));
  if (const value* part = find(root, "decoder"))
    KAPITSA_TRY(for_each_step(*part, "decoder", "decoders",
                              [&out](const object& step, std::string_view type) {
                                return add_decoder(step, type, out);
                              }));
  return out;
}

}  // namespace kapitsa::text::tokenizer_json
