#include "engine/device_thread.h"

#include "engine/outcome.h"

#include <algorithm>

namespace kapitsa::engine {
namespace {

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TextDelta::Position position_of(const sample::Sampled& drawn, const text::Tokenizer& tokenizer) {
  const auto describe = [&](int32_t token, float logprob) {
    return TokenLogprob{token, std::string(tokenizer.token_bytes(token)), logprob};
  };
  TextDelta::Position position{describe(drawn.token, *drawn.logprob), {}};
  for (const sample::TokenLogprob& top : drawn.top_logprobs) {
    position.top.push_back(describe(top.token, top.logprob));
  }
  return position;
}

}  // namespace

DeviceThread::DeviceThread(Loaded& loaded, int32_t max_sequences)
    : loaded_(loaded), pages_(loaded.limits.n_pages, loaded.limits.page_tokens),
      builder_(loaded.model->plan.n_history) {
  if (loaded_.model->diffusion) blocks_.emplace(loaded_);
  for (int32_t slot = max_sequences - 1; slot >= 0; --slot)
    free_state_slots_.push_back(slot);
  thread_ = std::thread([this] { loop(); });
}

DeviceThread::~DeviceThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DeviceThread::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void DeviceThread::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    cancellations_.push_back(id);
  }
  wake_.notify_one();
}

void DeviceThread::loop() {
  while (take_inbox()) {
    admit();
    run_turn();
    remove_ended();
  }
  for (const auto& sequence : live_)
    finish(*sequence, loaded_, FinishReason::cancelled);
  for (const Job& job : waiting_) {
    Finished event;
    event.reason = FinishReason::cancelled;
    event.prompt_tokens = static_cast<int32_t>(job.tokens.size());
    job.sink(event);
  }
}

bool DeviceThread::take_inbox() {
  std::vector<RequestId> cancelled;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      return stop_ || !inbox_.empty() || !cancellations_.empty() || !live_.empty();
    });
    for (Job& job : inbox_)
      waiting_.push_back(std::move(job));
    inbox_.clear();
    cancelled.swap(cancellations_);
    if (stop_) return false;
  }
  for (const RequestId id : cancelled) {
    const auto queued = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const Job& job) { return job.id == id; });
    if (queued != waiting_.end()) {
      Finished event;
      event.reason = FinishReason::cancelled;
      event.prompt_tokens = static_cast<int32_t>(queued->tokens.size());
      event.queue_seconds = seconds(Clock::now() - queued->submitted);
      queued->sink(event);
      waiting_.erase(queued);
      continue;
    }
    for (const auto& sequence : live_) {
      if (sequence->id == id) finish(*sequence, loaded_, FinishReason::cancelled);
    }
  }
  remove_ended();
  return true;
}

// First come, first served: a request that does not fit yet keeps later ones waiting, so that a
// long one is not starved by short ones.
void DeviceThread::admit() {
  while (!waiting_.empty() && !free_state_slots_.empty()) {
    Job& job = waiting_.front();
    kv::PageTable pages(pages_);
    const auto n_prompt = static_cast<int32_t>(job.tokens.size());
    // The last token of an answer never enters the cache, but in whole blocks.
    auto room = pages.extend(blocks_ ? blocks_->cache_tokens(n_prompt, job.max_tokens)
                                     : int64_t{n_prompt} + job.max_tokens - 1);
    if (!room && room.error().code == ErrorCode::out_of_memory && !live_.empty()) return;
    auto sequence = std::make_unique<Sequence>(
        Sequence{.id = job.id,
                 .sink = std::move(job.sink),
                 .sampling = std::move(job.sampling),
                 .confidence = job.confidence,
                 .max_tokens = job.max_tokens,
                 .ignore_eos = job.ignore_eos,
                 .tokens = std::move(job.tokens),
                 .n_prompt = n_prompt,
                 .pages = std::move(pages),
                 .answer = Answer(loaded_.vocabulary->tokenizer, job.stops, job.show_control),
                 .block = {},
                 .submitted = job.submitted,
                 .prefill_start = Clock::now()});
    waiting_.pop_front();
    if (!room) {
      fail(*sequence, room.error());
      continue;
    }
    sequence->tokens.reserve(sequence->tokens.size() + static_cast<size_t>(sequence->max_tokens));
    sequence->state_slot = free_state_slots_.back();
    free_state_slots_.pop_back();
    if (const Status cleared = loaded_.program->clear_state(sequence->state_slot); !cleared) {
      fail(*sequence, cleared.error());
    }
    live_.push_back(std::move(sequence));
  }
  remove_ended();
}

void DeviceThread::run_turn() {
  candidates_.clear();
  for (size_t i = 0; i < live_.size(); ++i) {
    const Sequence& sequence = *live_[i];
    const int32_t prompt_left = blocks_ ? blocks_->prompt_left(sequence)
                                        : std::max(sequence.n_prompt - sequence.committed, 0);
    candidates_.push_back({.index = static_cast<int32_t>(i),
                           .prompt_left = prompt_left,
                           .last_served = sequence.last_served});
  }
  plan_turn(candidates_, blocks_ ? blocks_->max_sequences() : kMaxDecodeRows, turn_);
  decoding_.clear();
  for (const int32_t index : turn_.decode) {
    decoding_.push_back(live_[static_cast<size_t>(index)].get());
    decoding_.back()->last_served = ++n_served_;
  }
  if (!decoding_.empty()) blocks_ ? blocks_->decode(decoding_) : decode(decoding_);
  if (turn_.prefill < 0) return;
  Sequence& sequence = *live_[static_cast<size_t>(turn_.prefill)];
  sequence.last_served = ++n_served_;
  blocks_ ? blocks_->prefill(sequence, turn_.prefill_rows) : prefill(sequence, turn_.prefill_rows);
}

void DeviceThread::decode(std::span<Sequence* const> sequences) {
  builder_.begin(plan::Phase::decode);
  for (const Sequence* sequence : sequences)
    builder_.add_chain(*sequence, 1, true);
  Status done = loaded_.program->run(builder_.pass());
  auto logits = done ? loaded_.program->read(loaded_.model->plan.logits, 0,
                                             static_cast<int32_t>(sequences.size()))
                     : Result<std::span<const float>>(done.error());
  const auto n_vocab = static_cast<size_t>(loaded_.model->plan.n_vocab);
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    if (!logits) {
      fail(sequence, logits.error());
      continue;
    }
    sequence.committed += 1;
    sequence.tape_row = static_cast<int32_t>(i);
    draw(sequence, logits->subspan(i * n_vocab, n_vocab));
  }
}

void DeviceThread::prefill(Sequence& sequence, int32_t n) {
  if (sequence.ended) return;
  const bool last = sequence.committed + n == sequence.n_prompt;
  builder_.begin(plan::Phase::prefill);
  builder_.add_chain(sequence, n, last);
  if (const Status done = loaded_.program->run(builder_.pass()); !done) {
    return fail(sequence, done.error());
  }
  sequence.committed += n;
  if (!last) {
    if (const Status done = loaded_.program->synchronise(); !done)
      return fail(sequence, done.error());
    sequence.sink(Prefilling{.done = sequence.committed, .total = sequence.n_prompt, .cached = 0});
    return;
  }
  const auto logits = loaded_.program->read(loaded_.model->plan.logits, 0, 1);
  if (!logits) return fail(sequence, logits.error());
  sequence.sink(Prefilling{.done = sequence.n_prompt, .total = sequence.n_prompt, .cached = 0});
  draw(sequence, *logits);
}

void DeviceThread::draw(Sequence& sequence, std::span<const float> logits) {
  const auto drawn =
      sample::sample_token(sequence.sampling,
                           {.logits = logits,
                            .history = sequence.tokens,
                            .n_prompt = static_cast<size_t>(sequence.n_prompt),
                            .position = static_cast<uint32_t>(sequence.tokens.size())},
                           scratch_);
  if (!drawn) return fail(sequence, drawn.error());
  std::vector<TextDelta::Position> logprobs;
  if (drawn->logprob) logprobs.push_back(position_of(*drawn, loaded_.vocabulary->tokenizer));
  if (sequence.n_generated() == 0) sequence.decode_start = Clock::now();
  emit_token(sequence, loaded_, drawn->token, std::move(logprobs));
}

void DeviceThread::remove_ended() {
  for (const auto& sequence : live_) {
    if (sequence->ended && sequence->state_slot >= 0)
      free_state_slots_.push_back(sequence->state_slot);
  }
  std::erase_if(live_, [](const auto& sequence) { return sequence->ended; });
}

}  // namespace kapitsa::engine
