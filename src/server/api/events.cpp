#include "server/api/events.h"

namespace kapitsa::server::api {
namespace {

void add_text(std::vector<AnswerPart>& parts, AnswerPart::Kind kind, const std::string& text) {
  if (text.empty()) return;
  if (parts.empty() || parts.back().kind != kind) parts.push_back({.kind = kind});
  parts.back().text += text;
}

}  // namespace

void WholeAnswer::add(const AnswerEvent& event) {
  if (const auto* reasoning = std::get_if<ReasoningText>(&event)) {
    add_text(parts, AnswerPart::Kind::reasoning, reasoning->text);
  } else if (const auto* text = std::get_if<AnswerText>(&event)) {
    add_text(parts, AnswerPart::Kind::text, text->text);
    logprobs.insert(logprobs.end(), text->logprobs.begin(), text->logprobs.end());
  } else if (const auto* begin = std::get_if<CallBegin>(&event)) {
    parts.push_back({.kind = AnswerPart::Kind::call,
                     .call_id = begin->id,
                     .name = begin->name,
                     .complete = false});
  } else if (const auto* arguments = std::get_if<CallArguments>(&event)) {
    parts.back().text += arguments->text;
  } else if (std::holds_alternative<CallEnd>(event)) {
    parts.back().complete = true;
  } else if (const auto* ended = std::get_if<Ended>(&event)) {
    end = *ended;
  }
}

std::string WholeAnswer::joined(AnswerPart::Kind kind) const {
  std::string text;
  for (const AnswerPart& part : parts)
    if (part.kind == kind) text += part.text;
  return text;
}

std::string sse(std::string_view event, std::string_view data) {
  std::string lines;
  lines.reserve(event.size() + data.size() + 18);
  if (!event.empty()) (lines += "event: ").append(event) += '\n';
  (lines += "data: ").append(data) += "\n\n";
  return lines;
}

}  // namespace kapitsa::server::api
