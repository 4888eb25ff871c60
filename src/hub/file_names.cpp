#include "hub/file_names.h"

#include <algorithm>

namespace kapitsa::hub {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Five digits; nullopt for anything else.
std::optional<int> five_digits(std::string_view text) {
  if (text.size() != 5 || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  int value = 0;
  for (const char c : text)
    value = value * 10 + (c - '0');
  return value;
}

}  // namespace

std::string upper_case(std::string_view text) {
  std::string out;
  for (const char c : text)
    out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  return out;
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::optional<Shard> parse_shard(std::string_view file_name) {
  constexpr size_t kTail = std::string_view("-00002-of-00003").size();
  const size_t dot = file_name.rfind('.');
  if (dot == std::string_view::npos || dot <= kTail) return std::nullopt;
  const std::string_view extension = file_name.substr(dot);
  if (extension != ".gguf" && extension != ".safetensors") return std::nullopt;
  const std::string_view tail = file_name.substr(dot - kTail, kTail);
  const auto index = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !index || !count || *index < 1 ||
      *index > *count)
    return std::nullopt;
  return Shard{std::string(file_name.substr(0, dot - kTail)), *index, *count};
}

bool is_gguf_name(std::string_view file_name) {
  const std::string name = upper_case(file_name);
  return name.ends_with(".GGUF") && name.find("MMPROJ") == std::string::npos &&
         name.find("IMATRIX") == std::string::npos;
}

std::string gguf_stem(std::string_view file_name) {
  if (auto shard = parse_shard(file_name)) return std::move(shard->stem);
  constexpr size_t kExtension = std::string_view(".gguf").size();
  if (upper_case(file_name).ends_with(".GGUF")) file_name.remove_suffix(kExtension);
  return std::string(file_name);
}

std::string quantisation_in(std::string_view file_name) {
  const std::string name = upper_case(gguf_stem(base_name(file_name)));
  std::string found;  // the last part that looks like a type
  for (size_t start = 0; start < name.size();) {
    const size_t end = std::min(name.find_first_of(".-", start), name.size());
    const std::string_view part = std::string_view(name).substr(start, end - start);
    const std::string_view after_i = part.starts_with('I') ? part.substr(1) : part;
    const bool quantised = after_i.size() > 1 && after_i[0] == 'Q' && is_digit(after_i[1]);
    if (quantised || part == "F16" || part == "BF16" || part == "F32" ||
        part.starts_with("MXFP4") || part == "NVFP4")
      found = part;
    start = end + 1;
  }
  return found;
}

}  // namespace kapitsa::hub
