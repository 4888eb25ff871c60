#include "cli/answer.h"

#include "base/json_write.h"
#include "base/system.h"
#include "cli/cli.h"
#include "cli/event_queue.h"
#include "cli/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

namespace kapitsa::cli {
namespace {

// False when the answer can no longer be written: a full disk, a closed output.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

std::string rate(int32_t tokens, double seconds) {
  return seconds > 0.0 ? fmt::format("{:.1f} tok/s", tokens / seconds) : std::string("-");
}

void print_figures(const Finished& done) {
  const Style style(2);
  std::fprintf(stderr, "%s\n", style.faint(fmt::format("[{}]", figures(done))).c_str());
}

class Printer {
public:
  explicit Printer(const AnswerStyle& style) : style_(style), terminal_(is_terminal(1)) {}

  bool event(const Event& event, const std::string& text) const {
    if (style_.json) return print(event_json(event, text) + "\n");
    bool written = true;
    if (const auto* delta = std::get_if<TextDelta>(&event))
      written = print(terminal_ ? for_terminal(delta->text) : delta->text);
    if (const auto* done = std::get_if<Finished>(&event)) {
      if (!text.ends_with('\n')) written = print("\n");
      if (!style_.quiet) print_figures(*done);
    }
    return written;
  }

private:
  AnswerStyle style_;
  bool terminal_;
};

// A context overflow is for the caller to explain.
Outcome failed(const Error& error, const AnswerStyle& style) {
  Outcome outcome;
  outcome.error = error;
  outcome.exit_code = kExitFailed;
  if (style.json) print(event_json(Failed{error}, "") + "\n");
  if (error.code != ErrorCode::context_overflow) report(error);
  return outcome;
}

}  // namespace

const char* reason_name(FinishReason reason) {
  switch (reason) {
  case FinishReason::stop_token: return "stop";
  case FinishReason::stop_text: return "stop_text";
  case FinishReason::length: return "length";
  case FinishReason::cancelled: return "cancelled";
  }
  return "";
}

std::string figures(const Finished& done) {
  std::string text =
      fmt::format("prompt {} tokens, {}; answer {} tokens, {}; seed {}", done.prompt_tokens,
                  rate(done.prompt_tokens, done.prefill_seconds), done.completion_tokens,
                  rate(done.decode_tokens, done.decode_seconds), done.seed);
  if (done.reason == FinishReason::length) text += "; stopped at the token limit";
  if (done.reason == FinishReason::cancelled) text += "; stopped by Ctrl-C";
  return text;
}

std::string event_json(const Event& event, const std::string& text) {
  JsonWriter json;
  json.begin_object();
  if (const auto* prefilling = std::get_if<Prefilling>(&event)) {
    json.member("event", "prefill")
        .member("done", prefilling->done)
        .member("total", prefilling->total);
  } else if (const auto* delta = std::get_if<TextDelta>(&event)) {
    json.member("event", "text").member("text", delta->text).key("tokens").begin_array();
    for (const int32_t token : delta->tokens)
      json.value(token);
    json.end_array();
  } else if (const auto* done = std::get_if<Finished>(&event)) {
    json.member("event", "end")
        .member("reason", reason_name(done->reason))
        .member("text", text)
        .member("prompt_tokens", done->prompt_tokens)
        .member("completion_tokens", done->completion_tokens)
        .member("seed", done->seed)
        .member("prefill_seconds", done->prefill_seconds)
        .member("decode_seconds", done->decode_seconds);
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    json.member("event", "error")
        .member("code", to_string(failed->error.code))
        .member("message", failed->error.message);
  }
  return json.end_object().take();
}

std::string for_terminal(const std::string& text) {
  std::string shown = text;
  std::erase_if(shown, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
  });
  return shown;
}

Outcome answer(Engine& engine, Request request, const AnswerStyle& style,
               const InterruptGuard& interrupt) {
  Outcome outcome;
  EventQueue queue;
  const Printer printer(style);
  const auto id = engine.submit(std::move(request), [&](const Event& event) { queue.push(event); });
  if (!id) return failed(id.error(), style);
  bool cancelled = false;
  std::optional<Error> unwritten;
  while (true) {
    if (interrupt.interrupted() && !cancelled) {
      engine.cancel(*id);
      cancelled = true;
    }
    const auto event = queue.pop(std::chrono::milliseconds(50));
    if (!event) continue;
    if (const auto* failure = std::get_if<Failed>(&*event)) {
      const std::string text = std::move(outcome.text);
      outcome = failed(failure->error, style);
      outcome.text = text;
      return outcome;
    }
    if (const auto* delta = std::get_if<TextDelta>(&*event)) outcome.text += delta->text;
    if (!unwritten && !printer.event(*event, outcome.text)) {
      unwritten =
          Error{ErrorCode::io, fmt::format("cannot write the answer: {}", std::strerror(errno))};
      engine.cancel(*id);
    }
    if (const auto* done = std::get_if<Finished>(&*event)) {
      outcome.finished = *done;
      if (unwritten) {
        outcome.error = unwritten;
        outcome.exit_code = report(*unwritten);
        return outcome;
      }
      if (done->reason == FinishReason::cancelled) outcome.exit_code = kExitInterrupted;
      return outcome;
    }
  }
}

}  // namespace kapitsa::cli
