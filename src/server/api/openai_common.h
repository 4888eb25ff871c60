// What OpenAI's dialects write alike.
#pragma once

#include "base/json_write.h"
#include "server/api/events.h"
#include "server/api/fields.h"

#include <vector>

namespace kapitsa::server::api {

// "stop", "length", "tool_calls"
const char* finish_reason(const Ended& end);
// Of all answers together: a prompt counts once for its `n` answers, which stand together.
Usage total(const std::vector<Usage>& usages, size_t n);
// A member "usage".
void write_usage(JsonWriter& json, const Usage& usage);
// {"token", "bytes", "logprob"} and, with `top`, its alternatives.
void write_logprob(JsonWriter& json, const TextDelta::Position& position);
// An array of those as the value of the member `name`.
void write_logprobs(JsonWriter& json, const char* name,
                    const std::vector<TextDelta::Position>& logprobs);
// The text of content given as a string or as a list of text parts; anything else is refused.
std::string content_text(const Fields& fields, std::string_view name);
// A custom tool takes plain text, and the model calls it as a function of this schema.
extern const char kCustomToolSchema[];
// The text out of the arguments {"input": TEXT}, and the way back.
std::string custom_input(const std::string& arguments);
std::string custom_arguments(const std::string& input);

// Whether the usage chunk was asked for, by stream_options.
bool include_usage(const Fields& fields, bool stream);

}  // namespace kapitsa::server::api
