#include "server/generation.h"

#include "text/output_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <random>

namespace kapitsa::server {
namespace {

using api::AnswerEvent;
using text::OutputEvent;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One answer of the request: the state between an engine's event and the dialect.
struct Choice {
  RequestId id = 0;
  int32_t max_tokens = 0;
  std::unique_ptr<text::OutputParser> parser;  // null: text is text
  std::vector<OutputEvent> parsed;             // reused
  std::vector<TextDelta::Position> logprobs;   // of text that has not come out yet
  int32_t reasoning_tokens = 0;
  bool has_calls = false;
  bool cut = false;  // ended by us, after its first call
  bool ended = false;
  api::WholeAnswer whole;  // of a reply that is not streamed
};

class Generation : public std::enable_shared_from_this<Generation> {
public:
  Generation(std::shared_ptr<http::Exchange> exchange, std::shared_ptr<Service> service,
             std::shared_ptr<Loaded> loaded, api::Call call, std::unique_ptr<api::Dialect> dialect,
             RequestRecord record, Clock::time_point received)
      : exchange_(std::move(exchange)), service_(std::move(service)), loaded_(std::move(loaded)),
        call_(std::move(call)), dialect_(std::move(dialect)), record_(std::move(record)),
        received_(received) {}

  void start() {
    choices_.resize(call_.requests.size());
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (const api::ApiError error = submit(i); error) {
        cancel(i);
        record_.ending = "refused";
        return refuse(error);
      }
    }
    exchange_->post([self = shared_from_this()] { self->begin(); });
  }

private:
  using Kind = OutputEvent::Kind;

  void refuse(const api::ApiError& error) {
    auto response = api::error_response(dialect_->family(), error, record_.id);
    record_.status = response.status;
    record_.error = error.message;
    record_.generated = false;
    exchange_->respond(std::move(response));
    close_record();
  }

  api::ApiError submit(size_t i) {
    Engine& engine = *loaded_->engine;
    Choice& choice = choices_[i];
    Request& request = call_.requests[i];
    choice.max_tokens = request.max_tokens;
    if (call_.chat) {
      text::OutputParserOptions options{.tools = call_.parse_tools};
      options.parameter_type = [types = &call_.parameter_types](const std::string& tool,
                                                                const std::string& parameter) {
        const auto found = types->find({tool, parameter});
        return found == types->end() ? std::string() : found->second;
      };
      const auto& prompt = std::get<ChatPrompt>(request.prompt);
      // Only a model that reasons has prompts that may end in the middle of it.
      if (!loaded_->facts.format.reasoning_begin.empty()) {
        const auto rendered = engine.render(prompt);
        if (!rendered) return api::engine_error(rendered.error(), 0, 0);
        options.in_reasoning = text::ends_in_reasoning(loaded_->facts.format, *rendered);
      }
      choice.parser = text::make_output_parser(loaded_->facts.format, std::move(options));
    }
    const auto for_count = request.prompt;
    const auto id =
        engine.submit(std::move(request), [self = shared_from_this(), i](const Event& e) {
          self->service_->progress();
          self->exchange_->post([self, i, e] { self->on_event(i, e); });
        });
    if (id) {
      choice.id = *id;
      return {};
    }
    int32_t n_prompt = 0;
    if (id.error().code == ErrorCode::context_overflow) n_prompt = count(for_count);
    return api::engine_error(id.error(), n_prompt, loaded_->facts.info.context);
  }

  int32_t count(const std::variant<ChatPrompt, TextPrompt, TokenPrompt>& prompt) const {
    if (const auto* tokens = std::get_if<TokenPrompt>(&prompt))
      return static_cast<int32_t>(tokens->tokens.size());
    const auto tokens = std::holds_alternative<ChatPrompt>(prompt)
                            ? loaded_->engine->tokenise(std::get<ChatPrompt>(prompt))
                            : loaded_->engine->tokenise(std::get<TextPrompt>(prompt));
    return tokens ? static_cast<int32_t>(tokens->size()) : 0;
  }

  // Cancels the answers before `end`.
  void cancel(size_t end) {
    for (size_t i = 0; i < end; ++i)
      if (!choices_[i].ended) loaded_->engine->cancel(choices_[i].id);
  }

  void begin() {
    begun_ = true;
    exchange_->on_closed([self = shared_from_this()] { self->client_gone(); });
    if (call_.stream) {
      http::Stream stream;
      stream.headers = {{"cache-control", "no-cache"},
                        {"x-accel-buffering", "no"},
                        {api::request_id_header(dialect_->family()), record_.id}};
      stream.keep_alive_after = service_->keep_alive_after;
      stream.keep_alive = [self = shared_from_this()] { return self->dialect_->keep_alive(); };
      exchange_->begin(std::move(stream));
      exchange_->send(dialect_->begin());
    }
    for (auto& [choice, event] : std::exchange(early_, {}))
      on_event(choice, event);
  }

  void client_gone() {
    gone_ = true;
    cancel(choices_.size());
  }

  void on_event(size_t i, const Event& event) {
    if (record_closed_) return;
    if (!begun_) {
      early_.emplace_back(i, event);
      return;
    }
    Choice& choice = choices_[i];
    if (const auto* prefilling = std::get_if<Prefilling>(&event)) {
      if (i == 0) {
        record_.prompt_done = prefilling->done;
        record_.prompt_tokens = prefilling->total;
        record_.cached_tokens = prefilling->cached;
      }
    } else if (const auto* delta = std::get_if<TextDelta>(&event)) {
      service_->failed = false;
      take_text(i, *delta);
    } else if (const auto* done = std::get_if<Finished>(&event)) {
      finish(i, *done);
    } else if (const auto* failure = std::get_if<Failed>(&event)) {
      choice.ended = true;
      fail(failure->error);
    }
  }

  void take_text(size_t i, const TextDelta& delta) {
    Choice& choice = choices_[i];
    if (choice.cut) return;
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    if (choice.parser == nullptr) {
      emit(i, api::AnswerText{delta.text, std::exchange(choice.logprobs, {})});
      return;
    }
    choice.parsed.clear();
    choice.parser->push(delta.text, choice.parsed);
    if (choice.parser->in_reasoning())
      choice.reasoning_tokens += static_cast<int32_t>(delta.tokens.size());
    emit_parsed(i);
  }

  void emit_parsed(size_t i) {
    Choice& choice = choices_[i];
    for (OutputEvent& event : choice.parsed) {
      if (choice.cut) return;
      switch (event.kind) {
      case Kind::reasoning:
        choice.logprobs.clear();
        emit(i, api::ReasoningText{std::move(event.text)});
        break;
      case Kind::content:
        emit(i, api::AnswerText{std::move(event.text), std::exchange(choice.logprobs, {})});
        break;
      case Kind::call_begin:
        choice.logprobs.clear();
        emit(i, api::CallBegin{random_id(), std::move(event.text)});
        break;
      case Kind::call_arguments: emit(i, api::CallArguments{std::move(event.text)}); break;
      case Kind::call_end:
        choice.has_calls = true;
        emit(i, api::CallEnd{});
        if (call_.one_call_only) {
          choice.cut = true;
          loaded_->engine->cancel(choice.id);
        }
        break;
      }
    }
  }

  void emit(size_t i, const AnswerEvent& event) {
    if (!call_.stream) return choices_[i].whole.add(event);
    exchange_->send(dialect_->event(i, event));
  }

  void finish(size_t i, const Finished& done) {
    Choice& choice = choices_[i];
    choice.ended = true;
    note(i, done);
    if (gone_ || (done.reason == FinishReason::cancelled && !choice.cut)) {
      record_.ending = "cancelled";
      if (all_ended()) return end_cancelled();
      return;
    }
    if (choice.parser != nullptr && !choice.cut) {
      choice.parsed.clear();
      choice.parser->flush(choice.parsed);
      emit_parsed(i);
    }
    api::Ended ended{.stop_text = done.stop_text, .has_calls = choice.has_calls};
    ended.usage = {.prompt_tokens = done.prompt_tokens,
                   .cached_tokens = done.cached_tokens,
                   .completion_tokens = done.completion_tokens,
                   .reasoning_tokens = std::min(choice.reasoning_tokens, done.completion_tokens)};
    if (done.reason == FinishReason::stop_text) ended.reason = api::EndReason::stop_text;
    if (done.reason == FinishReason::length)
      ended.reason = choice.max_tokens > 0 && done.completion_tokens >= choice.max_tokens
                         ? api::EndReason::max_tokens
                         : api::EndReason::context_full;
    record_.ending = done.reason == FinishReason::length ? "length"
                     : choice.has_calls                  ? "tool_calls"
                                                         : "stop";
    emit(i, ended);
    if (all_ended()) complete();
  }

  void note(size_t i, const Finished& done) {
    record_.completion_tokens += done.completion_tokens;
    if (i != 0) return;
    record_.prompt_tokens = done.prompt_tokens;
    record_.cached_tokens = done.cached_tokens;
    record_.queue_seconds = done.queue_seconds;
    record_.prefill_seconds = done.prefill_seconds;
    record_.decode_seconds = done.decode_seconds;
  }

  bool all_ended() const {
    return std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.ended; });
  }

  void complete() {
    record_.status = 200;
    if (call_.stream) {
      exchange_->send(dialect_->end());
      exchange_->end();
    } else {
      std::vector<api::WholeAnswer> answers;
      for (Choice& choice : choices_)
        answers.push_back(std::move(choice.whole));
      http::Response response;
      response.headers = {{api::request_id_header(dialect_->family()), record_.id}};
      response.body = dialect_->body(answers);
      exchange_->respond(std::move(response));
    }
    close_record();
  }

  // By a client that has gone, or because the server stops.
  void end_cancelled() {
    record_.status = gone_ ? 499 : 503;
    if (!gone_)
      send_failure({.status = 503,
                    .message = "the server is stopping; try again",
                    .code = "server_stopping",
                    .retry_after = 5});
    close_record();
  }

  void fail(const Error& error) {
    if (error.code == ErrorCode::device_failed) service_->failed = true;
    cancel(choices_.size());
    const api::ApiError failure = api::engine_error(error, 0, 0);
    record_.status = failure.status;
    record_.ending = "failed";
    record_.error = failure.message;
    if (!gone_) send_failure(failure);
    close_record();
  }

  void send_failure(const api::ApiError& error) {
    if (!call_.stream)
      return exchange_->respond(api::error_response(dialect_->family(), error, record_.id));
    exchange_->send(dialect_->failure(error));
    exchange_->end();
  }

  void close_record() {
    record_closed_ = true;
    record_.seconds = seconds_since(received_);
    --service_->open_requests;
    service_->record(record_);
  }

  const std::shared_ptr<http::Exchange> exchange_;
  const std::shared_ptr<Service> service_;
  const std::shared_ptr<Loaded> loaded_;
  api::Call call_;
  const std::unique_ptr<api::Dialect> dialect_;
  RequestRecord record_;
  const Clock::time_point received_;
  std::vector<Choice> choices_;
  std::vector<std::pair<size_t, Event>> early_;  // that came before begin()
  bool begun_ = false;
  bool gone_ = false;
  bool record_closed_ = false;
};

}  // namespace

std::string random_id() {
  static std::mutex mutex;
  static std::mt19937_64 generator{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return fmt::format("{:016x}{:08x}", generator(), generator() >> 32U);
}

void generate(std::shared_ptr<http::Exchange> exchange, std::shared_ptr<Service> service,
              api::Call call, std::unique_ptr<api::Dialect> dialect, RequestRecord record,
              Clock::time_point received) {
  auto loaded = service->loaded();
  record.generated = true;
  record.stream = call.stream;
  record.model = call.model;
  if (service->open_requests.fetch_add(1) == 0) service->progress();
  std::make_shared<Generation>(std::move(exchange), std::move(service), std::move(loaded),
                               std::move(call), std::move(dialect), std::move(record), received)
      ->start();
}

}  // namespace kapitsa::server
