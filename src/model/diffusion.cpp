#include "model/diffusion.h"

#include "model/config.h"

#include <fmt/format.h>

#include <array>
#include <span>

namespace kapitsa::model {
namespace {

// A prompt is cut at multiples of 64 or 128 tokens, and no block may be cut.
constexpr int32_t kLongestBlock = 128;

constexpr Key kThreshold = {"threshold", "threshold"};
constexpr Key kSteps = {"steps", "steps"};
constexpr Key kEdit = {"edit_threshold", "edit_threshold"};

// The first of the keys that the file has, else the fallback.
Result<int64_t> first_integer(const weights::Checkpoint& file, std::span<const char* const> keys,
                              int64_t fallback) {
  for (const char* key : keys) {
    if (file.has(key)) return file.integer(key);
  }
  return fallback;
}

bool is_gguf(const weights::Checkpoint& file) {
  return file.format() == weights::Format::gguf;
}

Result<int32_t> read_block(const weights::Checkpoint& file, int32_t fallback) {
  constexpr std::array kGguf = {"diffusion.block_length"};
  constexpr std::array kHf = {"diffusion.block_length", "block_length", "block_size"};
  const auto found =
      is_gguf(file) ? first_integer(file, kGguf, fallback) : first_integer(file, kHf, fallback);
  KAPITSA_ASSIGN(const int64_t block, found);
  if (block >= 1 && block <= kLongestBlock && kLongestBlock % block == 0)
    return static_cast<int32_t>(block);
  return Error{ErrorCode::unsupported,
               fmt::format("{}: block length of the diffusion: expected a power of two up to {}, "
                           "found {}",
                           file.path().string(), kLongestBlock, block)};
}

Result<int32_t> read_mask_token(const weights::Checkpoint& file, int32_t fallback) {
  constexpr std::array kGguf = {"diffusion.mask_token_id", "tokenizer.ggml.mask_token_id"};
  constexpr std::array kHf = {"diffusion.mask_token_id", "mask_token_id"};
  const auto found =
      is_gguf(file) ? first_integer(file, kGguf, fallback) : first_integer(file, kHf, fallback);
  KAPITSA_ASSIGN(const int64_t token, found);
  if (token > 0 && token < (1 << 24)) return static_cast<int32_t>(token);
  return Error{ErrorCode::corrupt_file,
               fmt::format("{}: diffusion.mask_token_id: expected the id of the mask token, found "
                           "{}",
                           file.path().string(), token == 0 ? "none" : std::to_string(token))};
}

}  // namespace

bool has_masked_diffusion(const weights::Checkpoint& file) {
  return file.has("diffusion.block_length");
}

Result<Diffusion> read_masked_diffusion(const weights::Checkpoint& file,
                                        const MaskedDefaults& family) {
  Diffusion diffusion;
  MaskedDiffusion rule;
  KAPITSA_ASSIGN(diffusion.block, read_block(file, family.block));
  KAPITSA_ASSIGN(rule.mask_token, read_mask_token(file, family.mask_token));
  ConfigReader reader(file, "diffusion", "diffusion.");
  rule.shift_logits = reader.flag_or({"shift_logits", "shift_logits"}, false);
  rule.threshold = reader.number_or(kThreshold, family.threshold, 0.0, 1.0);
  rule.steps = reader.count_or(kSteps, diffusion.block, diffusion.block);
  if (reader.has(kEdit)) rule.edit_threshold = reader.number(kEdit, 0.0, 1.0);
  rule.edit_steps = reader.count_or({"edit_steps", "edit_steps"}, rule.edit_steps, 1000);
  KAPITSA_TRY(reader.status());
  diffusion.rule = rule;
  return diffusion;
}

Status make_block_bidirectional(plan::Plan& plan, int32_t block) {
  for (const plan::State& state : plan.states()) {
    if (state.kind == plan::StateKind::kv_cache) continue;
    return Error{ErrorCode::unsupported,
                 "block diffusion with recurrent layers is not supported (state " + state.name +
                     ")"};
  }
  plan.attend_to_blocks(block);
  return {};
}

}  // namespace kapitsa::model
