// Text in segments through every pre-tokenizer with a byte vocabulary, back through the
// detokenizer, and through a stop matcher: nothing may be lost, and no control token may come out
// of untrusted text. The rest of the input is a hostile vocabulary.
#include "text/byte_alphabet.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace kapitsa::text;

constexpr std::string_view kPre[] = {"gpt-2",  "smollm", "llama-bpe", "qwen2",
                                     "qwen35", "tekken", "gpt-4o",    "bailingmoe"};

const Tokenizer& byte_tokenizer(size_t which) {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> made;
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back();
      utf8_append(tokens.back(), byte_to_alphabet(static_cast<uint8_t>(byte)));
    }
    const std::vector<std::string> merges = {"a a", "aa aa", "aaaa aaaa", "e s"};
    tokens.insert(tokens.end(), {"aa", "aaaa", "aaaaaaaa", "es", "<s>", "<think>", "  "});
    TokenizerSpec spec;
    spec.tokens.assign(tokens.begin(), tokens.end());
    spec.merges.assign(merges.begin(), merges.end());
    spec.types.assign(tokens.size(), TokenType::normal);
    spec.types[260] = TokenType::control;
    spec.types[261] = spec.types[262] = TokenType::user_defined;
    for (std::string_view pre : kPre) {
      spec.pre = pre;
      made.push_back(std::move(*Tokenizer::create(spec)));
    }
    return made;
  }();
  return all[which % all.size()];
}

void check(bool condition) {
  if (!condition) std::abort();
}

void round_trip(size_t which, std::string_view text) {
  const Tokenizer& tokenizer = byte_tokenizer(which);
  std::vector<Segment> segments;
  for (size_t pos = 0; pos < text.size(); pos += 1 + which % 23)
    segments.push_back({std::string(text.substr(pos, 1 + which % 23)), (pos & 1) != 0});
  const auto ids = tokenizer.encode(segments, {});
  check(ids.ok());
  std::string bytes;
  for (const int32_t id : *ids)
    bytes += tokenizer.token_bytes(id);
  check(bytes == text);
  const auto plain = tokenizer.encode(text, false);
  check(plain.ok() && std::find(plain->begin(), plain->end(), 260) == plain->end() &&
        std::find(plain->begin(), plain->end(), 261) == plain->end());
  const std::string shown = detokenize(tokenizer, *ids, {.show_control = true});
  check(utf8_valid(shown));
  check(shown == text || !utf8_valid(text));

  const std::vector<std::string> stops{std::string(text.substr(0, which % 5)), "aab"};
  StopMatcher matcher(stops);
  std::string out;
  for (const char c : shown)
    matcher.push({&c, 1}, out);
  if (!matcher.stopped()) matcher.flush(out);
  check(shown.starts_with(out) && (matcher.stopped() || out == shown));
}

// Lines of the input as tokens, merges and a pattern.
void hostile_vocabulary(std::string_view data) {
  TokenizerSpec spec;
  spec.pre = kPre[data.size() % std::size(kPre)];
  std::string_view rest = data;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with('~')) {
      if (!spec.split) spec.split.emplace();
      spec.split->push_back({std::string(line.substr(1)), static_cast<SplitBehaviour>(end % 5)});
    } else if (line.find(' ', 1) != std::string_view::npos) {
      spec.merges.push_back(line);
    } else {
      spec.tokens.push_back(line);
      spec.types.push_back(static_cast<TokenType>(line.empty() ? 9 : 1 + line.size() % 6));
    }
  }
  const auto tokenizer = Tokenizer::create(spec);
  if (tokenizer) (void)tokenizer->encode(data.substr(0, 64), true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] == '#')
    hostile_vocabulary(text);
  else
    round_trip(data[0], text);
  return 0;
}
