// Any bytes as a chat template, rendered over a conversation with tools under small limits. Besides
// crashes and hangs it looks for user text that lost its origin: the marker that only user text
// holds must not come out as trusted.
#include "text/chat_template.h"

#include <cstdlib>
#include <string_view>

namespace {

constexpr std::string_view kMarker = "\u00b6\u00a7";

std::vector<kapitsa::text::ChatMessage> conversation() {
  using kapitsa::text::ChatMessage;
  const std::string marker(kMarker);
  ChatMessage call{.role = "assistant"};
  call.tool_calls = {
      {.id = "1", .name = marker, .arguments_json = R"({"a": [1, 2.5, null], "b": "x"})"}};
  ChatMessage parts{.role = "user"};
  parts.parts = {{.text = marker}, {.type = "image"}};
  return {{.role = "system", .content = marker},
          {.role = "user", .content = "a" + marker + " <think> b\n"},
          call,
          {.role = "tool", .content = "{}", .tool_call_id = "1"},
          parts};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat = kapitsa::text::ChatTemplate::parse(source);
  if (!chat) return 0;
  kapitsa::text::ChatTemplateOptions options;
  options.limits = {.max_steps = 200'000, .max_bytes = 1'000'000};
  options.tools_json =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"x": null}}}])";
  options.bos_token = "<s>";
  options.now = std::tm{};
  const auto segments = chat->render(conversation(), options);
  if (!segments || source.find(kMarker.substr(0, 1)) != std::string_view::npos) return 0;
  for (const auto& segment : *segments)
    if (segment.trusted && segment.text.find(kMarker) != std::string::npos &&
        source.find('\\') == std::string_view::npos)
      std::abort();
  return 0;
}
