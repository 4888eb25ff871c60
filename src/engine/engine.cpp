// The facade over the parts: checks and tokenises requests on the caller's thread, and hands them
// to the device thread.
#include "kapitsa/engine.h"

#include "engine/device_thread.h"
#include "engine/prompt.h"
#include "engine/traffic.h"

#include <atomic>
#include <random>

namespace kapitsa {
namespace {

sample::SamplerParams sampler_params(const Sampling& sampling) {
  sample::SamplerParams params;
  params.temperature = sampling.temperature;
  params.top_k = sampling.top_k;
  params.top_p = sampling.top_p;
  params.min_p = sampling.min_p;
  params.repetition_penalty = sampling.repetition_penalty;
  params.frequency_penalty = sampling.frequency_penalty;
  params.presence_penalty = sampling.presence_penalty;
  params.penalty_window = sampling.penalty_window;
  params.logit_bias = sampling.logit_bias;
  params.choice = sampling.choice;
  params.n_logprobs = sampling.n_logprobs;
  params.seed = sampling.seed ? *sampling.seed : std::random_device{}();
  return params;
}

Error refused(const char* field, const char* why) {
  return {ErrorCode::invalid_argument, std::string(field) + ": " + why};
}

// What the model's way of decoding cannot honour (docs/architecture.md, invariant 6).
Status check_diffusion(const std::optional<model::Diffusion>& diffusion, const Sampling& sampling) {
  constexpr const char* kBlocks = "not available: the model writes blocks, not token by token";
  if (!diffusion) {
    return sampling.confidence ? refused("confidence", "only for models that write by masked block "
                                                       "diffusion, and this one writes token by "
                                                       "token")
                               : Status();
  }
  if (sampling.repetition_penalty != 1.0F) return refused("repetition_penalty", kBlocks);
  if (sampling.frequency_penalty != 0.0F) return refused("frequency_penalty", kBlocks);
  if (sampling.presence_penalty != 0.0F) return refused("presence_penalty", kBlocks);
  if (sampling.n_logprobs >= 0) return refused("logprobs", kBlocks);
  if (!sampling.confidence) return {};
  if (!std::holds_alternative<model::MaskedDiffusion>(diffusion->rule))
    return refused("confidence", "the model decides by entropy, not by probability");
  if (!(*sampling.confidence >= 0.0F && *sampling.confidence <= 1.0F)) {
    return Error{ErrorCode::invalid_argument,
                 "confidence: expected 0 to 1, found " + std::to_string(*sampling.confidence)};
  }
  return {};
}

class EngineImpl final : public Engine {
public:
  EngineImpl(engine::Loaded loaded, int32_t max_sequences)
      : loaded_(std::move(loaded)), thread_(loaded_, max_sequences) {}

  const ModelInfo& model() const override { return loaded_.info; }

  int64_t decode_bytes(int64_t position) const override {
    return engine::decode_bytes(loaded_.model->plan, position);
  }

  Result<RequestId> submit(Request request, EventSink sink) override {
    engine::Job job;
    KAPITSA_ASSIGN(job.tokens, engine::prompt_tokens(loaded_, request.prompt));
    job.sampling = sampler_params(request.sampling);
    KAPITSA_TRY(sample::validate(job.sampling, loaded_.info.n_vocab));
    KAPITSA_TRY(check_diffusion(loaded_.model->diffusion, request.sampling));
    job.confidence = request.sampling.confidence;
    KAPITSA_ASSIGN(job.max_tokens, answer_room(request, static_cast<int32_t>(job.tokens.size())));
    job.id = next_id_.fetch_add(1);
    job.sink = std::move(sink);
    job.ignore_eos = request.ignore_eos;
    job.show_control = request.show_control;
    job.stops = std::move(request.stop);
    job.submitted = engine::Clock::now();
    const RequestId id = job.id;
    thread_.submit(std::move(job));
    return id;
  }

  void cancel(RequestId id) override { thread_.cancel(id); }

  Result<std::string> render(const ChatPrompt& prompt) const override {
    return engine::render(loaded_, prompt);
  }

  Result<std::vector<int32_t>>
  tokenise(const std::variant<ChatPrompt, TextPrompt>& prompt) const override {
    return std::visit([&](const auto& p) { return engine::prompt_tokens(loaded_, p); }, prompt);
  }

  Result<std::string> detokenise(const std::vector<int32_t>& tokens) const override {
    KAPITSA_TRY(engine::check_tokens(loaded_, tokens));
    return text::detokenize(loaded_.vocabulary->tokenizer, tokens, {.show_control = true});
  }

private:
  // Tokens that the answer may have.
  Result<int32_t> answer_room(const Request& request, int32_t n_prompt) const {
    if (request.max_tokens < 0) {
      return Error{ErrorCode::invalid_argument,
                   "max_tokens: expected 0 (no limit) or more, found " +
                       std::to_string(request.max_tokens)};
    }
    const int32_t room = loaded_.info.context - n_prompt;
    if (room < 1) {
      return Error{ErrorCode::context_overflow,
                   "the prompt has " + std::to_string(n_prompt) + " tokens, the context holds " +
                       std::to_string(loaded_.info.context) +
                       " (prompt and answer); shorten it or load the model with a larger context"};
    }
    return request.max_tokens == 0 ? room : std::min(request.max_tokens, room);
  }

  engine::Loaded loaded_;
  std::atomic<RequestId> next_id_{1};
  engine::DeviceThread thread_;  // last: it uses loaded_
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::load(const LoadOptions& options) {
  KAPITSA_ASSIGN(engine::Loaded loaded, engine::load(options));
  return std::unique_ptr<Engine>(
      std::make_unique<EngineImpl>(std::move(loaded), options.max_sequences));
}

}  // namespace kapitsa
