#include "engine/outcome.h"

#include <utility>

namespace kapitsa::engine {
namespace {

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
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
    event.prefill_seconds = seconds(sequence.decode_start - sequence.prefill_start);
    event.decode_seconds = seconds(sequence.last_token - sequence.decode_start);
    event.decode_tokens = sequence.n_generated() - (sequence.block.is_open() ? 0 : 1);
  }
  return event;
}

}  // namespace

void emit_token(Sequence& sequence, Loaded& loaded, int32_t token,
                std::vector<TextDelta::Position> logprobs) {
  sequence.last_token = Clock::now();
  sequence.tokens.push_back(token);
  if (loaded.vocabulary->is_stop(token) && !sequence.ignore_eos) {
    return finish(sequence, loaded, FinishReason::stop_token);
  }
  sequence.sink(sequence.answer.push(token, std::move(logprobs)));
  if (sequence.answer.stopped()) return finish(sequence, loaded, FinishReason::stop_text);
  if (sequence.n_generated() >= sequence.max_tokens) finish(sequence, loaded, FinishReason::length);
}

void finish(Sequence& sequence, Loaded& loaded, FinishReason reason) {
  if (sequence.ended) return;
  sequence.ended = true;
  const TextDelta rest = sequence.answer.flush();
  if (!rest.text.empty()) sequence.sink(rest);
  Finished event = finished(sequence, reason);
  event.steps = take_steps(*loaded.program);
  sequence.sink(event);
}

void fail(Sequence& sequence, const Error& error) {
  if (sequence.ended) return;
  sequence.ended = true;
  sequence.sink(Failed{error});
}

}  // namespace kapitsa::engine
