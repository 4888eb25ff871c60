// Any bytes as a tokenizer.json: a tokenizer or an error of one line, and a tokenizer encodes and
// decodes text without a crash. Control tokens must not come out of untrusted text, except where
// the vocabulary says that this token is what unknown text becomes.
#include "text/detokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kapitsa::text;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  (void)read_tokenizer_config(json);
  const auto tokenizer = read_tokenizer_json(json);
  if (!tokenizer) {
    if (tokenizer.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string text =
      "ab <s> a.b\u00e9\u4e2d\xFF 12\n\u2581x" + std::string(json.substr(0, 100));
  for (const bool trusted : {true, false}) {
    const auto ids = tokenizer->encode(text, trusted, {.add_special = trusted});
    if (!ids) continue;
    if (!utf8_valid(detokenize(*tokenizer, *ids, {.show_control = true, .at_start = true})))
      std::abort();
    for (const int32_t id : *ids) {
      const bool is_control = tokenizer->token_type(id) == TokenType::control;
      if (!trusted && is_control && json.find("unk") == std::string_view::npos) std::abort();
    }
  }
  return 0;
}
