// How the vocabularies that GGUF files name cut text into words: the patterns of their families'
// tokenizer.json files. A name that is not here is refused, because a wrong pattern gives wrong
// tokens without a sign of it.
#include "text/pretokenize.h"

#include <algorithm>
#include <array>
#include <span>

namespace kapitsa::text {

namespace {

using Pattern = std::string_view;

constexpr Pattern kDigit = R"(\p{N})";
constexpr Pattern kThreeDigits = R"(\p{N}{1,3})";
constexpr Pattern kLineBreak = R"([\r\n])";
constexpr Pattern kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr Pattern kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Pattern kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Pattern kQwen35 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                            R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Pattern kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Pattern kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Pattern kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// Qwen2's without the line breaks that it lets punctuation take along.
constexpr Pattern kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Pattern kMinicpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Chinese and, by the wide ranges of the first, much else.
constexpr Pattern kDeepSeekHan = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr Pattern kDeepSeek3Han = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
// Letters that have cases, without those of some scripts.
constexpr Pattern kDeepSeekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-)"
    R"(\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-)"
    R"(\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-)"
    R"(\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-)"
    R"(\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-)"
    R"(\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-)"
    R"(\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126})"
    R"(\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149})"
    R"(\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2})"
    R"(\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-)"
    R"(\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-)"
    R"(\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})"
    R"(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr Pattern kDeepSeekMarks =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr Pattern kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr Pattern kGpt2Rules[] = {kGpt2};
constexpr Pattern kDigitGpt2Rules[] = {kDigit, kGpt2};
constexpr Pattern kLlama3Rules[] = {kLlama3};
constexpr Pattern kQwen2Rules[] = {kQwen2};
constexpr Pattern kQwen35Rules[] = {kQwen35};
constexpr Pattern kTekkenRules[] = {kTekken};
constexpr Pattern kGpt4oRules[] = {kGpt4o};
constexpr Pattern kBailingRules[] = {kBailing};
constexpr Pattern kSeedCoderRules[] = {kSeedCoder};
constexpr Pattern kMinicpm5Rules[] = {kThreeDigits, kMinicpm5};
constexpr Pattern kLagunaRules[] = {R"([^\n]+|\n+)", kQwen2};
constexpr Pattern kFalconRules[] = {R"([\p{P}$+<=>^~|`]+)", kGpt2, "[0-9][0-9][0-9]"};
constexpr Pattern kDeepSeekRules[] = {kLineBreak, kDeepSeekLetters, kDeepSeekMarks,
                                      R"(\s+$)",  kDeepSeekHan,     kDigit};
constexpr Pattern kDeepSeekCoderRules[] = {kLineBreak, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekHan,
                                           kDigit};
constexpr Pattern kDeepSeek3Rules[] = {kThreeDigits, kDeepSeek3Han, kDeepSeek3};

struct NamedRules {
  std::string_view name;
  std::span<const Pattern> patterns;
  bool ignore_merges = false;
};

constexpr NamedRules kNamed[] = {
    {"gpt-2", kGpt2Rules},
    {"gpt2", kGpt2Rules},
    {"mpt", kGpt2Rules},
    {"olmo", kGpt2Rules},
    {"phi-2", kGpt2Rules},
    {"jais", kGpt2Rules},
    {"gigachat", kGpt2Rules},
    {"trillion", kGpt2Rules},
    {"exaone4", kGpt2Rules},
    {"granite-docling", kGpt2Rules},
    {"smollm", kDigitGpt2Rules},
    {"starcoder", kDigitGpt2Rules},
    {"refact", kDigitGpt2Rules},
    {"command-r", kDigitGpt2Rules},
    {"codeshell", kDigitGpt2Rules},
    {"exaone", kDigitGpt2Rules},
    {"minerva-7b", kDigitGpt2Rules},
    {"mellum2", kDigitGpt2Rules},
    {"llama3", kLlama3Rules, true},
    {"llama-v3", kLlama3Rules, true},
    {"llama-bpe", kLlama3Rules, true},
    {"pixtral", kLlama3Rules, true},
    {"falcon3", kLlama3Rules, true},
    {"falcon-h1", kLlama3Rules, true},
    {"lfm2", kLlama3Rules, true},
    {"glm4", kLlama3Rules, true},
    {"glm5", kLlama3Rules, true},
    {"chatglm-bpe", kLlama3Rules},
    {"dbrx", kLlama3Rules},
    {"smaug-bpe", kLlama3Rules},
    {"qwen2", kQwen2Rules},
    {"deepseek-r1-qwen", kQwen2Rules},
    {"stablelm2", kQwen2Rules},
    {"hunyuan", kQwen2Rules},
    {"solar-open", kQwen2Rules},
    {"grok-2", kQwen2Rules},
    {"megrez", kQwen2Rules},
    {"qwen35", kQwen35Rules},
    {"laguna", kLagunaRules},
    {"seed-coder", kSeedCoderRules},
    {"minicpm5", kMinicpm5Rules, true},
    {"tekken", kTekkenRules, true},
    {"gpt-4o", kGpt4oRules},
    {"llama4", kGpt4oRules},
    {"minimax-m2", kGpt4oRules},
    {"bailingmoe", kBailingRules},
    {"bailingmoe2", kBailingRules},
    {"llada-moe", kBailingRules},
    {"falcon", kFalconRules},
    {"deepseek-llm", kDeepSeekRules},
    {"deepseek-coder", kDeepSeekCoderRules},
    {"deepseek-v3", kDeepSeek3Rules},
    {"hunyuan-dense", kDeepSeek3Rules},
};

const NamedRules* find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kNamed), std::end(kNamed),
                                   [name](const NamedRules& named) { return named.name == name; });
  return found == std::end(kNamed) ? nullptr : found;
}

}  // namespace

std::vector<SplitRule> pretokenizer_rules(std::string_view name) {
  std::vector<SplitRule> rules;
  if (const NamedRules* named = find(name)) {
    for (const Pattern pattern : named->patterns)
      rules.push_back({std::string(pattern)});
  }
  return rules;
}

bool implies_ignore_merges(std::string_view name) {
  const NamedRules* named = find(name);
  return named != nullptr && named->ignore_merges;
}

}  // namespace kapitsa::text
