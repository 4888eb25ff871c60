// Magic numbers and typical first words; the order goes from sure signs to weak ones.
#include "weights/file_kind.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace kapitsa::weights {
namespace {

bool is_safetensors(std::string_view head, size_t file_size) {
  if (head.size() < 9 || head[8] != '{') return false;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, head.data(), sizeof header_bytes);
  return header_bytes <= file_size - 8;
}

// Compares without regard to ASCII case, after leading white space.
bool starts_like(std::string_view head, std::string_view lower_case) {
  const size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return false;
  head.remove_prefix(begin);
  return head.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), head.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

}  // namespace

std::string_view guess_file_kind(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 512));
  if (head.empty()) return "an empty file";
  if (head.starts_with("GGUF")) return "a GGUF file";
  if (is_safetensors(head, bytes.size())) return "a safetensors file";
  if (head.starts_with("version https://git-lfs"))
    return "a git-LFS pointer (download the real file, for example with git lfs pull)";
  if (starts_like(head, "<!doctype html") || starts_like(head, "<html"))
    return "an HTML page (the download went wrong)";
  using namespace std::string_view_literals;
  if (head.starts_with("PK\x03\x04"sv)) return "a zip archive or PyTorch checkpoint";
  if (head.starts_with("\x80\x02"sv)) return "a Python pickle (old PyTorch checkpoint)";
  if (head.starts_with("\x1f\x8b"sv)) return "a gzip archive";
  if (head.starts_with("\x28\xb5\x2f\xfd"sv)) return "a zstd archive";
  for (const std::string_view old : {"lmgg"sv, "tjgg"sv, "algg"sv, "fmgg"sv, "ggml"sv}) {
    if (head.starts_with(old)) return "a GGML file from before GGUF (convert the model again)";
  }
  if (starts_like(head, "{")) return "JSON text";
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; }))
    return "zero bytes (an unfinished download)";
  return "an unknown format";
}

}  // namespace kapitsa::weights
