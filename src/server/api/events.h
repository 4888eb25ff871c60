// What happens in an answer, as every dialect sees it; a Dialect turns it into a vendor's events or
// into one whole reply.
#pragma once

#include "kapitsa/engine.h"
#include "server/api/error.h"

#include <string>
#include <variant>
#include <vector>

namespace kapitsa::server::api {

enum class EndReason : uint8_t { stop, stop_text, max_tokens, context_full };

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt
  int32_t completion_tokens = 0;
  int32_t reasoning_tokens = 0;  // of the completion
};

struct ReasoningText {
  std::string text;
};
struct AnswerText {
  std::string text;
  std::vector<TextDelta::Position> logprobs;
};
struct CallBegin {
  std::string id;  // without the vendor's prefix
  std::string name;
};
struct CallArguments {
  std::string text;
};
struct CallEnd {};
struct Ended {
  EndReason reason = EndReason::stop;
  std::string stop_text;
  bool has_calls = false;  // complete ones
  Usage usage;
};

using AnswerEvent =
    std::variant<ReasoningText, AnswerText, CallBegin, CallArguments, CallEnd, Ended>;

// A whole answer: its parts in their order. Neighbouring text of one kind is one part.
struct AnswerPart {
  enum class Kind : uint8_t { reasoning, text, call };
  Kind kind = Kind::text;
  std::string text;  // of a call: its arguments
  std::string call_id;
  std::string name;
  bool complete = true;  // of a call
};
struct WholeAnswer {
  std::vector<AnswerPart> parts;
  std::vector<TextDelta::Position> logprobs;
  Ended end;

  void add(const AnswerEvent& event);
  std::string joined(AnswerPart::Kind kind) const;
};

// One request in the words of one vendor. Pure: what it says depends only on what it was told.
class Dialect {
public:
  virtual ~Dialect() = default;

  virtual Family family() const = 0;
  // The stream's first events, sent as soon as the request is queued.
  virtual std::string begin() = 0;
  virtual std::string event(size_t choice, const AnswerEvent& event) = 0;
  // After every answer has ended.
  virtual std::string end() = 0;
  virtual std::string keep_alive() = 0;
  // In a stream that has begun; nothing comes after it.
  virtual std::string failure(const ApiError& error) = 0;
  // The reply that is not streamed.
  virtual std::string body(const std::vector<WholeAnswer>& answers) = 0;
};

// Lines of server-sent events.
std::string sse(std::string_view event, std::string_view data);  // event: may be empty

}  // namespace kapitsa::server::api
