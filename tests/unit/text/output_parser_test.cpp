// Answers as the families write them: each is cut at every byte, and byte by byte, and must give
// the same reasoning, content and calls.
#include "text/output_parser.h"

#include <gtest/gtest.h>

namespace kapitsa::text {
namespace {

using Kind = OutputEvent::Kind;

std::vector<OutputEvent> merged(const std::vector<OutputEvent>& events) {
  std::vector<OutputEvent> result;
  for (const OutputEvent& event : events) {
    const bool joins = event.kind != Kind::call_begin && event.kind != Kind::call_end;
    if (joins && !result.empty() && result.back().kind == event.kind) {
      result.back().text += event.text;
    } else {
      result.push_back(event);
    }
  }
  return result;
}

// "R:thought|C:text|F:name|A:{..}|." and so on.
std::string shown(const std::vector<OutputEvent>& events) {
  std::string text;
  for (const OutputEvent& event : merged(events)) {
    constexpr const char* kNames[] = {"R:", "C:", "F:", "A:", "."};
    text +=
        (text.empty() ? "" : "|") + std::string(kNames[static_cast<int>(event.kind)]) + event.text;
  }
  return text;
}

OutputParserOptions options(bool in_reasoning, bool tools = true) {
  return {.in_reasoning = in_reasoning,
          .tools = tools,
          .parameter_type = [](const std::string&, const std::string& parameter) -> std::string {
            if (parameter == "count") return "integer";
            if (parameter == "deep") return "object";
            if (parameter == "sure") return "boolean";
            return "string";
          }};
}

std::string parsed(const OutputFormat& format, const OutputParserOptions& how,
                   const std::vector<std::string>& pieces) {
  const auto parser = make_output_parser(format, how);
  std::vector<OutputEvent> events;
  for (const std::string& piece : pieces)
    parser->push(piece, events);
  parser->flush(events);
  return shown(events);
}

void expect(const char* chat_template, const OutputParserOptions& how, const std::string& answer,
            const std::string& expected) {
  const OutputFormat format = output_format(chat_template);
  EXPECT_EQ(parsed(format, how, {answer}), expected);
  std::vector<std::string> bytes;
  for (size_t cut = 0; cut < answer.size(); ++cut) {
    bytes.push_back(answer.substr(cut, 1));
    EXPECT_EQ(parsed(format, how, {answer.substr(0, cut), answer.substr(cut)}), expected) << cut;
  }
  EXPECT_EQ(parsed(format, how, bytes), expected);
}

constexpr const char* kQwen3 = "<think></think><tool_call>";
constexpr const char* kQwen35 = "<think></think><tool_call><function=";
constexpr const char* kLlama = "<|python_tag|> ipython parameters";
constexpr const char* kMistral = "[TOOL_CALLS]";
constexpr const char* kNemotron = "<think><TOOLCALL>";
constexpr const char* kGemma = "<|tool_call><|channel>";
constexpr const char* kHarmony = "<|channel|><|message|>";
constexpr const char* kGlm = "<think><tool_call><arg_key>";

TEST(OutputFormat, is_told_by_the_template) {
  EXPECT_EQ(output_format(kQwen3).tools, ToolStyle::hermes_json);
  EXPECT_EQ(output_format(kQwen35).tools, ToolStyle::qwen_xml);
  EXPECT_EQ(output_format(kLlama).tools, ToolStyle::llama_json);
  EXPECT_EQ(output_format(kMistral).tools, ToolStyle::mistral);
  EXPECT_EQ(output_format(kNemotron).tools, ToolStyle::nemotron_json);
  EXPECT_EQ(output_format(kGemma).tools, ToolStyle::gemma);
  EXPECT_EQ(output_format(kHarmony).tools, ToolStyle::harmony);
  EXPECT_EQ(output_format(kGlm).tools, ToolStyle::glm_xml);
  EXPECT_EQ(output_format("{{ messages }}").tools, ToolStyle::none);
  EXPECT_EQ(output_format("{{ messages }}").reasoning_end, "");
  EXPECT_TRUE(output_format(kHarmony).control_in_reasoning);
  EXPECT_TRUE(output_format(kMistral).control_in_tools);
  EXPECT_FALSE(output_format(kMistral).control_in_reasoning);
  EXPECT_FALSE(output_format(kQwen35).control_in_tools);
}

TEST(OutputFormat, a_prompt_may_end_in_reasoning) {
  const OutputFormat format = output_format(kQwen35);
  EXPECT_TRUE(ends_in_reasoning(format, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_reasoning(format, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_reasoning(format, "<|im_start|>assistant\n"));
}

TEST(OutputParser, plain_text_stays_as_it_is) {
  expect("", options(false), "  <think> a </think>\n\n", "C:  <think> a </think>\n\n");
  expect(kQwen3, options(false), "  a < b and <th\n", "C:  a < b and <th\n");
  expect(kQwen3, options(false), "", "");
}

TEST(OutputParser, reasoning_is_split_off) {
  expect(kQwen3, options(false), "<think>\nhm\n</think>\n\nyes\n", "R:hm|C:yes\n");
  expect(kQwen3, options(true), "hm <b>\n\n</think>yes", "R:hm <b>|C:yes");
  expect(kQwen3, options(false), "</think>yes", "C:yes");
  expect(kQwen3, options(true), "still thinking", "R:still thinking");
  expect(kQwen3, options(false), "The tag <think> begins it.", "C:The tag <think> begins it.");
}

TEST(OutputParser, hermes_calls) {
  expect(kQwen3, options(false),
         "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\", \"n\": "
         "[1]}}\n"
         "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
         "C:Sure.|F:f|A:{\"a\": \"</tool_call>\", \"n\": [1]}|.|F:g|A:{}|.");
  expect(kQwen3, options(false), "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}",
         "F:f|A:{\"a\": 1}|.");
  expect(kQwen3, options(false), "<tool_call>{\"name\": \"f\"}</tool_call>", "F:f|A:{}|.");
  expect(kQwen3, options(false),
         "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
         "F:f|A:{\"a\": 1}|.");
}

TEST(OutputParser, a_call_in_reasoning_ends_it) {
  expect(kQwen3, options(true),
         "I call.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
         "R:I call.|F:f|A:{}|.");
}

TEST(OutputParser, a_call_that_is_cut_never_ends) {
  expect(kQwen3, options(false), "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x",
         "F:f|A:{\"a\": \"x");
  expect(kQwen3, options(false), "<tool_call>{\"na", "C:<tool_call>{\"na");
  expect(kQwen3, options(false), "x <tool_ca", "C:x <tool_ca");
}

TEST(OutputParser, what_only_looks_like_a_call_is_text) {
  expect(kQwen3, options(false), "<tool_call>soon</tool_call>", "C:<tool_call>soon");
  expect(kQwen3, options(false, false), "<tool_call>{\"name\": \"f\"}</tool_call>",
         "C:<tool_call>{\"name\": \"f\"}</tool_call>");
}

TEST(OutputParser, qwen_xml_calls) {
  expect(kQwen35, options(true),
         "hm\n</think>\n\n<tool_call>\n<function=write>\n<parameter=text>\n line "
         "\"1\"\n\n</parameter>\n"
         "<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>",
         "R:hm|F:write|A:{\"text\":\" line \\\"1\\\"\\n\",\"count\":3}|.");
  // Without the wrapper, without parameters, two of them.
  expect(kQwen35, options(false), "<function=f>\n</function>\n<function=g></function>",
         "F:f|A:{}|.|F:g|A:{}|.");
  expect(kQwen35, options(false),
         "<tool_call><function=f><parameter=sure>True</parameter><parameter=deep>{\"a\": [1]}"
         "</parameter><parameter=count>many</parameter></function></tool_call>",
         "F:f|A:{\"sure\":true,\"deep\":{\"a\": [1]},\"count\":\"many\"}|.");
  expect(kQwen35, options(false), "<tool_call><function=f><parameter=p>a</para</parameter>",
         "F:f|A:{\"p\":\"a</para\"}|.");
  expect(kQwen35, options(false), "<tool_call><function=f><parameter=p>cut", "F:f|A:{\"p\":\"cut");
}

TEST(OutputParser, glm_calls) {
  expect(kGlm, options(false),
         "<tool_call>f\n<arg_key>p</arg_key>\n<arg_value>a\nb</arg_value>\n<arg_key>count</arg_key>"
         "<arg_value>2</arg_value></tool_call>",
         "F:f|A:{\"p\":\"a\\nb\",\"count\":2}|.");
}

TEST(OutputParser, llama_calls) {
  expect(kLlama, options(false), "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
         "F:f|A:{\"a\": 1}|.");
  expect(kLlama, options(false), "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
         "F:f|A:{}|.");
  expect(kLlama, options(false), "{\"answer\": 1}", "C:{\"answer\": 1}");
  expect(kLlama, options(false), "A set: {1}", "C:A set: {1}");
}

TEST(OutputParser, mistral_calls) {
  expect(kMistral, options(false),
         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"123456789\"}, "
         "{\"name\": \"g\", \"arguments\": {}}]",
         "F:f|A:{\"a\": \"]\"}|.|F:g|A:{}|.");
  expect(kMistral, options(false),
         "Well.[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": 1}}[TOOL_CALLS]g[ARGS]{}",
         "C:Well.|F:f|A:{\"a\": {\"b\": 1}}|.|F:g|A:{}|.");
}

TEST(OutputParser, nemotron_calls) {
  expect(kNemotron, options(true),
         "hm</think>\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL>\n",
         "R:hm|F:f|A:{\"a\": 1}|.");
}

TEST(OutputParser, gemma_calls) {
  expect(
      kGemma, options(false),
      "<|channel>thought\nhm<channel|><|tool_call>call:f{a:<|\"|>x \"y\" <|<|\"|>,n:{b:[1,true]}}"
      "<tool_call|>",
      "R:hm|F:f|A:{\"a\":\"x \\\"y\\\" <|\",\"n\":{\"b\":[1,true]}}|.");
}

TEST(OutputParser, harmony_messages) {
  expect(kHarmony, options(false),
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
         "R:hm|C:yes");
  expect(kHarmony, options(false),
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.f <|constrain|>json<|message|>{\"a\": 1}",
         "R:hm|F:f|A:{\"a\": 1}|.");
  expect(kHarmony, options(false),
         "<|channel|>commentary to=functions.f<|message|>{\"a\":", "F:f|A:{\"a\":");
}

}  // namespace
}  // namespace kapitsa::text
