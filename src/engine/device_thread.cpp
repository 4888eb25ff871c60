#include "engine/device_thread.h"

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

std::vector<StepTime> take_steps(backend::Program& program) {
  std::vector<StepTime> steps;
  for (backend::StepTime& time : program.take_step_times()) {
    steps.push_back({.label = std::move(time.label),
                     .op = time.op,
                     .prefill = time.phase == plan::Phase::prefill,
                     .passes = time.passes,
                     .rows = time.rows,
                     .bytes = time.bytes,
                     .seconds = time.seconds,
                     .best = time.best});
  }
  return steps;
}

Finished finished(const Sequence& sequence, FinishReason reason) {
  Finished event;
  event.reason = reason;
  event.stop_text = sequence.answer.stop_text();
  event.prompt_tokens = sequence.n_prompt;
  event.completion_tokens = sequence.n_generated();
  event.seed = sequence.sampling.seed;
  event.queue_seconds = seconds(sequence.prefill_start - sequence.submitted);
  if (sequence.n_generated() > 0) {
    event.prefill_seconds = seconds(sequence.first_token - sequence.prefill_start);
    event.decode_seconds = seconds(sequence.last_token - sequence.first_token);
  }
  return event;
}

}  // namespace

DeviceThread::DeviceThread(Loaded& loaded, int32_t max_sequences)
    : loaded_(loaded), pages_(loaded.limits.n_pages, loaded.limits.page_tokens),
      builder_(loaded.model->plan.n_history) {
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
    finish(*sequence, FinishReason::cancelled);
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
      if (sequence->id == id) finish(*sequence, FinishReason::cancelled);
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
    // The last token of an answer never enters the cache.
    const auto n_prompt = static_cast<int32_t>(job.tokens.size());
    auto room = pages.extend(int64_t{n_prompt} + job.max_tokens - 1);
    if (!room && room.error().code == ErrorCode::out_of_memory && !live_.empty()) return;
    auto sequence = std::make_unique<Sequence>(
        Sequence{.id = job.id,
                 .sink = std::move(job.sink),
                 .sampling = std::move(job.sampling),
                 .max_tokens = job.max_tokens,
                 .ignore_eos = job.ignore_eos,
                 .tokens = std::move(job.tokens),
                 .n_prompt = n_prompt,
                 .pages = std::move(pages),
                 .answer = Answer(loaded_.vocabulary->tokenizer, job.stops, job.show_control),
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
    candidates_.push_back({.index = static_cast<int32_t>(i),
                           .prompt_left = std::max(sequence.n_prompt - sequence.committed, 0),
                           .last_served = sequence.last_served});
  }
  plan_turn(candidates_, kMaxDecodeRows, turn_);
  if (!turn_.decode.empty()) decode(turn_.decode);
  if (turn_.prefill >= 0) prefill(*live_[static_cast<size_t>(turn_.prefill)], turn_.prefill_rows);
}

void DeviceThread::decode(const std::vector<int32_t>& indexes) {
  builder_.begin(plan::Phase::decode);
  for (const int32_t index : indexes)
    builder_.add_chain(*live_[static_cast<size_t>(index)], 1, true);
  Status done = loaded_.program->run(builder_.pass());
  auto logits = done ? loaded_.program->read(loaded_.model->plan.logits, 0,
                                             static_cast<int32_t>(indexes.size()))
                     : Result<std::span<const float>>(done.error());
  const auto n_vocab = static_cast<size_t>(loaded_.model->plan.n_vocab);
  for (size_t i = 0; i < indexes.size(); ++i) {
    Sequence& sequence = *live_[static_cast<size_t>(indexes[i])];
    sequence.last_served = ++n_served_;
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
  sequence.last_served = ++n_served_;
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
  emit_token(sequence, drawn->token, std::move(logprobs));
}

void DeviceThread::emit_token(Sequence& sequence, int32_t token,
                              std::vector<TextDelta::Position> logprobs) {
  sequence.last_token = Clock::now();
  if (sequence.n_generated() == 0) sequence.first_token = sequence.last_token;
  sequence.tokens.push_back(token);
  if (loaded_.vocabulary->is_stop(token) && !sequence.ignore_eos) {
    return finish(sequence, FinishReason::stop_token);
  }
  sequence.sink(sequence.answer.push(token, std::move(logprobs)));
  if (sequence.answer.stopped()) return finish(sequence, FinishReason::stop_text);
  if (sequence.n_generated() >= sequence.max_tokens) finish(sequence, FinishReason::length);
}

void DeviceThread::finish(Sequence& sequence, FinishReason reason) {
  if (sequence.ended) return;
  sequence.ended = true;
  const TextDelta rest = sequence.answer.flush();
  if (!rest.text.empty()) sequence.sink(rest);
  Finished event = finished(sequence, reason);
  event.steps = take_steps(*loaded_.program);
  sequence.sink(event);
}

void DeviceThread::fail(Sequence& sequence, const Error& error) {
  if (sequence.ended) return;
  sequence.ended = true;
  sequence.sink(Failed{error});
}

void DeviceThread::remove_ended() {
  for (const auto& sequence : live_) {
    if (sequence->ended && sequence->state_slot >= 0)
      free_state_slots_.push_back(sequence->state_slot);
  }
  std::erase_if(live_, [](const auto& sequence) { return sequence->ended; });
}

}  // namespace kapitsa::engine
