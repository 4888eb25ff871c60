// One request from submission to its end: the answer goes to stdout as it is made, as text or as
// JSON events, one a line; the line of figures and errors go to stderr.
#pragma once

#include "base/interrupt.h"
#include "kapitsa/engine.h"

#include <optional>
#include <string>

namespace kapitsa::cli {

struct AnswerStyle {
  bool json = false;
  bool quiet = false;  // no line of figures
};

struct Outcome {
  int exit_code = 0;  // 0, kExitFailed or kExitInterrupted
  std::string text;   // what was made, up to a Ctrl-C
  std::optional<Finished> finished;
  std::optional<Error> error;  // reported already, except a context overflow
};

// Ctrl-C cancels the request.
Outcome answer(Engine& engine, Request request, const AnswerStyle& style,
               const InterruptGuard& interrupt);

// "prompt 12 tokens, 310.2 tok/s; answer 40 tokens, 98.1 tok/s; seed 7"
std::string figures(const Finished& done);

// As the JSON events name it: "stop", "stop_text", "length", "cancelled".
const char* reason_name(FinishReason reason);

// The event as one line of JSON, without its newline; `text` is the whole answer, for the last one.
std::string event_json(const Event& event, const std::string& text);

// Without the control characters, except newline and tab, that would steer a terminal.
std::string for_terminal(const std::string& text);

}  // namespace kapitsa::cli
